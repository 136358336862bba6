"""Ending a run by signals, as a terminal, an operator and a closed terminal do, and what is left of it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import psutil

from infra.process import wait_until
from infra.services.state import ServiceState
from tests.support.command import Overnight, run_arguments

_GONE_S = 15
"""How long after the command's end its last processes may take to be gone."""
SERVERS = ("prefect", "mlflow")


@dataclass(frozen=True)
class Ended:
    """How the command ended."""

    exit_code: int
    """As a shell has it: 128 and the signal's number when one ended it, as in Python's first moments."""
    seconds: float
    """Until the end of the command, from the signal that it was sent."""
    output: str


@dataclass(frozen=True)
class Sitting:
    """The command at work on a run, in a process group of its own, as a shell starts it."""

    overnight: Overnight
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, overnight: Overnight, *arguments: str) -> "Sitting":
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *arguments],
            env=overnight.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return cls(overnight, process)

    @classmethod
    def run(cls, overnight: Overnight, run_id: str, *overrides: str) -> "Sitting":
        return cls.start(overnight, "run", *run_arguments("tiny-cpu.yaml", run_id, *overrides))

    def signal(self, number: signal.Signals, group: bool) -> None:
        """Send a signal to the process group, as a terminal does, or to the process alone."""
        (os.killpg if group else os.kill)(self.process.pid, number)

    def end(self, since: float | None = None, timeout_s: float = 60) -> Ended:
        """Wait for its end; `since` is when a signal was sent, by time.monotonic(), else now."""
        since = time.monotonic() if since is None else since
        try:
            output, _ = self.process.communicate(timeout=timeout_s)
        finally:
            self.process.kill()
        code = self.process.returncode
        return Ended(code if code >= 0 else 128 - code, time.monotonic() - since, output)


def left_of(overnight: Overnight) -> list[psutil.Process]:
    """Processes with this state folder in their environment that are none of its servers."""
    servers = {record.process.pid for record in ServiceState(overnight.home).read().values()}
    wanted = str(overnight.home)
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("OVERNIGHT_HOME") == wanted and process.pid not in servers:
                found.append(process)
    return [process for process in found if not (set(_parents(process)) & servers)]


def wait_until_nothing_is_left(overnight: Overnight) -> float:
    """Seconds until only the servers are there."""
    began = time.monotonic()
    wait_until(lambda: not left_of(overnight), _GONE_S, "the end of what the run started", every_s=0.5)
    return time.monotonic() - began


def services_up(overnight: Overnight) -> dict[str, int]:
    """Process ids by the names of the services that run."""
    records = ServiceState(overnight.home).read()
    return {name: record.process.pid for name, record in records.items() if record.runs}


def _parents(process: psutil.Process) -> list[int]:
    with contextlib.suppress(psutil.Error):
        return [parent.pid for parent in process.parents()]
    return []
