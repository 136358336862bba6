"""SIGKILL of the engine in the middle of a run: it is replaced, and the weights are the same in the end."""

import psutil
import pytest

from tests.support.chaos import SETTINGS, servers_below, wait_for_commits
from tests.support.command import Overnight, run_arguments

STEPS = 6


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_killed_engine_is_replaced_and_the_run_ends_with_the_same_weights(
    overnight: Overnight, reference_hashes: list[str]
) -> None:
    arguments = run_arguments("tiny-cpu.yaml", "struck", f"loop.steps={STEPS}", *SETTINGS)
    process = overnight.start("run", *arguments)
    try:
        wait_for_commits(overnight, process, "struck", 3)
        (engine,) = servers_below(process.pid)
        engine.kill()
        wait_for_commits(overnight, process, "struck", 5)
        (replacement,) = servers_below(process.pid)
        assert replacement.pid != engine.pid
        assert not psutil.pid_exists(engine.pid)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    finally:
        process.kill()

    ledger = overnight.json("ledger", "struck")
    assert [record["version"] for record in ledger] == list(range(STEPS + 1))
    assert [record["hash"] for record in ledger] == reference_hashes[: STEPS + 1]
