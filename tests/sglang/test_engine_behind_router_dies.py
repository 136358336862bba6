"""SIGKILL of an engine behind the router: no sample is lost, and none comes from weights not verified yet."""

import psutil
import pytest

from tasks.record.samples import RolloutBatch
from tests.support.chaos import servers_below, two_free_ports, wait_for_commits
from tests.support.command import Overnight, run_arguments

STEPS = 4


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_an_engine_killed_behind_the_router_comes_back_with_the_version(overnight: Overnight) -> None:
    """It comes back at the address that the router knew, with no version on it."""
    arguments = run_arguments(
        "tiny-cpu.yaml",
        "routed",
        f"loop.steps={STEPS}",
        f"engine={{count: 2, router: sglang, port: {two_free_ports()}}}",
        "rollout={prompts_per_step: 8, samples_per_prompt: 4, max_new_tokens: 48}",
        "evaluation.at_start=false",
        "evaluation.problems=20",
        "evaluation.samples=1",
    )
    process = overnight.start("run", *arguments)
    try:
        wait_for_commits(overnight, process, "routed", 2)
        struck, _ = servers_below(process.pid)
        struck.kill()
        wait_for_commits(overnight, process, "routed", 4)
        assert not psutil.pid_exists(struck.pid)
        assert len(servers_below(process.pid)) == 2
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    finally:
        process.kill()

    ledger = overnight.json("ledger", "routed")
    assert [record["version"] for record in ledger] == list(range(STEPS + 1))
    assert all(set(record["engines"].values()) == {record["hash"]} for record in ledger)
    for step in range(1, STEPS + 1):
        file = overnight.home / f"runs/routed/steps/{step:06d}/rollouts.parquet"
        batch = RolloutBatch.from_parquet(file.read_bytes())
        assert {span.version for sample in batch.samples() for span in sample.spans} == {step - 1}
