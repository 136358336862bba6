"""Watching a run that goes on in another process, and striking at what is below it."""

import subprocess
import time
from pathlib import Path

import psutil

from infra.process import free_port, port_is_free
from tests.support.command import Overnight

SETTINGS = (
    "trainer.checkpoint_every=3",
    "evaluation={problems: 20, samples: 1, at_start: false}",
)
"""Of the runs that things happen to, besides their number of steps; weights are not a function of them."""


def committed_steps(home: Path, run_id: str) -> int:
    """How many commits a run has, that of step 0 included."""
    return len(list((home / "runs" / run_id / "steps").glob("*/commit.json")))


def wait_for_commits(overnight: Overnight, process: subprocess.Popen[str], run_id: str, commits: int) -> None:
    """Wait until the run that the process works on has so many commits."""
    deadline = time.monotonic() + 300
    while committed_steps(overnight.home, run_id) < commits:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the run makes no commits"
        time.sleep(0.05)


def servers_below(pid: int, argument: str = "infra.engines.embedded") -> list[psutil.Process]:
    """The servers below a process that were started with an argument; the embedded engines by default."""
    return [
        child for child in psutil.Process(pid).children(recursive=True) if argument in _command_line(child)
    ]


def two_free_ports() -> int:
    """The first of two neighbouring ports that are free."""
    return next(port for _ in range(100) if port_is_free((port := free_port()) + 1))


def server_at(url: str) -> psutil.Process:
    """This process's child that listens at a URL."""
    port = int(url.rsplit(":", 1)[1])
    children = psutil.Process().children()
    return next(child for child in children if any(n.laddr.port == port for n in child.net_connections()))


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
