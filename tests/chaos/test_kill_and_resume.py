"""SIGKILL of the whole process tree, at random points, and the same weights in the end."""

import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.support.command import Overnight, overnight_in, run_arguments

STEPS = 12
SETTINGS = (
    f"loop.steps={STEPS}",
    "trainer.checkpoint_every=3",
    "evaluation.problems=20",
    "evaluation.samples=1",
)
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


def committed_steps(home: Path, run_id: str) -> int:
    return len(list((home / "runs" / run_id / "steps").glob("*/commit.json")))


def kill_after(
    overnight: Overnight, process: subprocess.Popen[str], run_id: str, commits: int, delay_s: float
) -> int:
    """Kill the run `delay_s` after it has made `commits` further commits; how many it has then."""
    goal = committed_steps(overnight.home, run_id) + commits
    deadline = time.monotonic() + 200
    while committed_steps(overnight.home, run_id) < goal:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the run makes no commits"
        time.sleep(0.05)
    time.sleep(delay_s)
    assert process.poll() is None, "the run ended before it could be killed: the test proves nothing"
    assert len(kill_tree(process)) > 3, "engines, trainer and Ray should have been in the tree"
    return committed_steps(overnight.home, run_id)


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_three_kills_give_the_weights_of_an_undisturbed_run(tmp_path: Path) -> None:
    seed = random.randrange(10_000)
    print(f"random seed {seed}")
    rng = random.Random(seed)
    with overnight_in(tmp_path) as overnight:
        undisturbed = overnight.run_config("tiny-cpu.yaml", "undisturbed", *SETTINGS)
        process = overnight.start("run", *run_arguments("tiny-cpu.yaml", "killed", *SETTINGS))
        for kill in range(KILLS):
            reached = kill_after(overnight, process, "killed", rng.randint(1, 2), rng.uniform(0, 0.8))
            assert reached <= STEPS, f"kill {kill} came after the last step"
            process = overnight.start("resume", "killed", "--json")
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, err

        ledger = overnight.json("ledger", "killed")
        reference = overnight.json("ledger", "undisturbed")
        assert [record["version"] for record in ledger] == list(range(STEPS + 1))
        assert [record["hash"] for record in ledger] == [record["hash"] for record in reference]
        assert undisturbed["weights_hash"] in out
