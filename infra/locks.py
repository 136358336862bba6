"""Locks between processes of a machine: files that one process at a time holds."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def locked(path: Path, timeout_s: float, taken: Callable[[str], Exception]) -> Iterator[None]:
    """Hold a lock file for this process, which lets go at the end or by its death.

    While another holder has it, waits for up to `timeout_s` seconds, with 0 not at all, and then raises what
    `taken` makes of that holder's process id. OSError where the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout_s, fallback_to_soft=False)  # a soft lock would outlive its process
    try:
        lock.acquire()
    except Timeout:
        raise taken(path.read_text() or "unknown") from None
    try:
        path.write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Whether a process holds a lock file at this moment; asking delays whoever wants it for that long."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
