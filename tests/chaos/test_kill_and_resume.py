"""SIGKILL of the whole process tree, at random points, and the same weights in the end."""

import random
import subprocess
import time

import psutil
import pytest

from tests.support.chaos import SETTINGS, committed_steps, wait_for_commits
from tests.support.command import REFERENCE_STEPS as STEPS
from tests.support.command import Overnight, run_arguments

KILLS = 3


def kill_tree(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """SIGKILL a process and all its descendants; the processes that were killed."""
    root = psutil.Process(process.pid)
    family = [root, *root.children(recursive=True)]
    for member in family:
        member.kill()
    process.communicate()
    psutil.wait_procs(family, timeout=20)
    return family


def kill_after(
    overnight: Overnight, process: subprocess.Popen[str], run_id: str, commits: int, delay_s: float
) -> int:
    """Kill the run `delay_s` after it has made `commits` further commits; how many it has then."""
    wait_for_commits(overnight, process, run_id, committed_steps(overnight.home, run_id) + commits)
    time.sleep(delay_s)
    assert process.poll() is None, "the run ended before it could be killed: the test proves nothing"
    assert len(kill_tree(process)) > 3, "engines, trainer and Ray should have been in the tree"
    return committed_steps(overnight.home, run_id)


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_three_kills_give_the_weights_of_an_undisturbed_run(
    overnight: Overnight, reference_hashes: list[str]
) -> None:
    seed = random.randrange(10_000)
    print(f"random seed {seed}")
    rng = random.Random(seed)
    arguments = run_arguments("tiny-cpu.yaml", "killed", f"loop.steps={STEPS}", *SETTINGS)
    process = overnight.start("run", *arguments)
    for kill in range(KILLS):
        reached = kill_after(overnight, process, "killed", rng.randint(1, 2), rng.uniform(0, 0.8))
        assert reached <= STEPS, f"kill {kill} came after the last step"
        process = overnight.start("resume", "killed", "--json")
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err

    ledger = overnight.json("ledger", "killed")
    assert [record["version"] for record in ledger] == list(range(STEPS + 1))
    assert [record["hash"] for record in ledger] == reference_hashes
    assert reference_hashes[-1] in out
