"""Starting, finding and stopping server processes and everything below them."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from infra.logs import LOG_BYTES, begin_anew

LOOPBACK = "127.0.0.1"
"""The address of a machine that only itself can reach."""
_PR_SET_PDEATHSIG = 1


def spawn(
    command: list[str], log: Path, env: dict[str, str] | None = None, dies_with_parent: bool = True
) -> subprocess.Popen[bytes]:
    """Start a server with its output in `log`, in a session of its own.

    `env` adds to this process's environment. With `dies_with_parent` the kernel kills the child when the
    thread that started it ends, so call this from a thread that lives as long as the child should.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    begin_anew(log, LOG_BYTES)
    libc = ctypes.CDLL(None) if dies_with_parent else None

    def before_exec() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            preexec_fn=before_exec,
        )


def stop_tree(pid: int, grace_s: float = 10) -> None:
    """Terminate a process, then kill what is left of all that it started; fine when already gone.

    It is asked alone, since servers that see their children end take it for a crash. Children of one that
    died before are known by the session that `spawn` gave it. TimeoutError names the processes that even a
    kill does not end.
    """
    family = _family(pid)
    for process in family[:1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    psutil.wait_procs(family, timeout=grace_s)
    alive = _family(pid) + [process for process in family if _runs(process)]
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(alive, timeout=grace_s)
    if stuck := [process.pid for process in alive if _runs(process)]:
        raise TimeoutError(f"processes {stuck} did not end within {grace_s:g} s")


def _family(pid: int) -> list[psutil.Process]:
    """The process, its descendants, and everything in a session of its own."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == pid and process not in family:
                family.append(process)
    return [process for process in family if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    """Whether it is alive; one that only waits to be reaped holds nothing."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_port(host: str = LOOPBACK) -> int:
    """A port that is free now on an address of this machine."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def port_is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def wait_until(ready: Callable[[], bool], timeout_s: float, what: str, every_s: float = 0.2) -> None:
    """Poll until `ready()`; TimeoutError naming `what` after timeout_s seconds."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} was not ready within {timeout_s:.0f} s")
        time.sleep(every_s)


def log_tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log in one line, for error messages."""
    if not log.exists():
        return "no log"
    return " | ".join(log.read_text(errors="replace").splitlines()[-lines:])
