"""Which runs of a state folder processes of this machine work on, by their locks: no server is asked."""

from dataclasses import dataclass

from infra.home import Home
from infra.locks import is_held
from tasks.record.run import Run

_ENDING = "ending"


@dataclass(frozen=True)
class BusyRun:
    """A run that a process works on."""

    id: str
    pid: int | None
    """That process; None when it has only just taken the run."""
    ending: bool
    """Whether it was told to end and is about to."""


def busy_runs(home: Home) -> list[BusyRun]:
    """The runs that are being worked on, by id."""
    busy = []
    for path in sorted(home.locks.glob("*.lock")):
        if is_held(path):
            pid, _, rest = path.read_text().partition(" ")
            busy.append(BusyRun(path.stem, int(pid) if pid.isdecimal() else None, _ENDING in rest))
    return busy


def mark_ending(run: Run, pid: int) -> None:
    """Say in the lock of a run, which the process has, that it is about to let go of it."""
    run.lock.write_text(f"{pid} (which is {_ENDING})")
