"""configs/tiny-sglang-cpu.yaml: five steps on real SGLang engines, one of which is killed in mid-rollout."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.chaos import servers_below, two_free_ports, wait_for_commits
from tests.support.command import Overnight, run_arguments

STEPS = 5
ENGINES = ("engine-0", "engine-1")


def commits(overnight: Overnight, run_id: str) -> list[dict[str, Any]]:
    files = sorted((overnight.home / "runs" / run_id / "steps").glob("*/commit.json"))
    return [json.loads(file.read_text()) for file in files]


def wait_for_line(log: Path, text: str, after: int) -> None:
    """Wait until the log has a line with the text beyond its first `after` bytes."""
    deadline = time.monotonic() + 60
    while text not in log.read_bytes()[after:].decode(errors="replace"):
        assert time.monotonic() < deadline, f"no {text} in {log}"
        time.sleep(0.02)


@pytest.mark.timeout(600)
def test_the_run_goes_on_when_an_engine_is_killed_in_mid_rollout(overnight: Overnight) -> None:
    port = two_free_ports()
    overrides = (
        "engine.arguments.decode-log-interval=1",  # tells when it generates
        "engine.count=2",
        f"engine.port={port}",
        "evaluation.problems=40",
        "evaluation.samples=2",
    )
    process = overnight.start(
        "run", *run_arguments("tiny-sglang-cpu.yaml", "struck", f"loop.steps={STEPS}", *overrides)
    )
    log = overnight.home / "logs/struck/engine-1.log"
    try:
        wait_for_commits(overnight, process, "struck", 3)
        wait_for_line(log, "Decode batch", after=log.stat().st_size)
        (server,) = servers_below(process.pid, f"--port={port + 1}")
        for each in (server, *server.children(recursive=True)):
            each.kill()
        _, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
    finally:
        process.kill()

    calls = calls_since_the_second_start(log)
    loaded, stamped = calls.index("update_weights_from_disk"), calls.index("update_weight_version", 1)
    assert calls[0] == "update_weight_version"  # unverified
    assert loaded < stamped and "generate" in calls[loaded:stamped]  # the probe
    assert "generate" in calls[stamped:]
    steps = commits(overnight, "struck")
    assert [commit["weights"]["number"] for commit in steps] == list(range(STEPS + 1))
    for commit in steps:
        assert commit["publish"]["engine_hashes"] == dict.fromkeys(ENGINES, commit["weights"]["hash"])
    trained = [commit["metrics"] for commit in steps[1:]]
    assert max(metrics["divergence/logprob_abs_diff_max"] for metrics in trained) <= 1e-4
    assert not any(metrics["divergence/mismatched_version_tokens"] for metrics in trained)
    assert trained[-1]["reward/mean"] > trained[0]["reward/mean"] + 0.1


def calls_since_the_second_start(log: Path) -> list[str]:
    """What an engine that was started twice was asked to do after it was up again."""
    _, _, since = log.read_text(errors="replace").split("The server is fired up")
    return re.findall(r'"POST /(update_weights_from_disk|update_weight_version|generate) ', since)
