"""Before the servers go: no run loses them unasked."""

import contextlib
import signal
import time

import psutil
from rich.console import Console

from configs.errors import UserError
from infra.home import Home
from infra.process import stop_tree
from tasks.record.busy import BusyRun, busy_runs

_END_S = 25
"""How long a process that was told to end may take, before it is killed."""


class RunsAreGoing(UserError):
    """Processes of this machine work on runs."""


def stop_runs(home: Home, console: Console, force: bool) -> None:
    """Wait for runs that are ending; end those that are going by `force`, else RunsAreGoing names them."""
    going = [run for run in busy_runs(home) if not run.ending]
    if going and not force:
        named = ", ".join(f"{run.id} (process {run.pid})" for run in going)
        raise RunsAreGoing(f"going: {named}: wait for it, or end it with `overnight down --force`")
    for run in going:
        console.print(f"ending run {run.id}: continue with `overnight resume {run.id}`")
        _tell(run)
    for run in _after(_END_S, home):
        if run.pid is not None:
            stop_tree(run.pid)


def _tell(run: BusyRun) -> None:
    if run.pid is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(run.pid).send_signal(signal.SIGTERM)


def _after(timeout_s: float, home: Home) -> list[BusyRun]:
    """The runs that are still worked on when so much time has passed; none as soon as there are none."""
    deadline = time.monotonic() + timeout_s
    while (busy := busy_runs(home)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return busy
