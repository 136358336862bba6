"""How a sitting ends when Ctrl-C, SIGTERM or SIGHUP say so: soon, wherever it is.

The flow works in a thread of its own. The signal is answered in the main thread, which does nothing else
any more: it starts no server and hears no report of a failure. Nothing that the flow waits for is waited for,
since a run can be killed at any moment and goes on from its commits. Its processes are killed, and Prefect
and MLflow are told what the flow cannot tell any more.
"""

import contextlib
import contextvars
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FrameType, TracebackType
from typing import TypeVar

from rich.console import Console

from infra.interrupts import ENDING
from infra.services import Services
from tasks.record.busy import mark_ending
from tasks.record.run import Run

T = TypeVar("T")
_GRACE_S = 15
"""How long the end may take; what is not told by then stays untold."""
_LAST_WORD_S = 3
"""Of it, how long for the terminal."""
_LISTEN_S = 0.2
"""How often the signals are taken back: Ray takes SIGTERM as it starts, and answers it with SIGABRT."""


class Interruption:
    """Answers the signals while it is entered. The process ends with 128 plus the signal's number.

    A second signal does not wait for Prefect and MLflow. A signal that whoever started the process has it
    ignore, as nohup does with SIGHUP, stays ignored.
    """

    def __init__(self, run: Run, console: Console, line: str) -> None:
        self._run = run
        self._console = console
        self._line = line
        self._before: dict[signal.Signals, object] = {}
        self._works = False
        self._ends = False
        self.is_recorded = False
        """Whether MLflow has or gets a run of it, to be set to KILLED."""
        self.clear_terminal: Callable[[], None] = lambda: None
        """Takes off the terminal what is shown there besides lines."""

    def __enter__(self) -> "Interruption":
        for number in ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.getsignal(number)
        self._listen()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it is what signal.signal gave

    def work(self, flow: Callable[[], T]) -> T:
        """What a flow, or a part of it, returns or raises, which has a thread of its own."""
        done: Future[T] = Future()

        def working() -> None:
            try:
                done.set_result(flow())
            except BaseException as error:
                done.set_exception(error)

        self._works = True
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(working,), name="flow", daemon=True).start()
        while not done.done():
            wait([done], _LISTEN_S)
            self._listen()
        return done.result()

    def _listen(self) -> None:
        for number in self._before:
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        hastened, self._ends = self._ends, True
        if not hastened:
            with contextlib.suppress(OSError):
                mark_ending(self._run, os.getpid())
            self._within(_LAST_WORD_S, self._last_word)
            _silence()
            if self._works:
                self._within(_GRACE_S - _LAST_WORD_S, lambda: self._take_down(signal.Signals(number)))
        elif self._works:
            self._within(_LAST_WORD_S, self._run.config.cluster.build(self._run.home).kill)
        os._exit(128 + number)

    def _within(self, timeout_s: float, act: Callable[[], None]) -> None:
        """Do something in a thread, since what it needs may be held by what the signal cut into."""
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        thread.join(timeout_s)

    def _last_word(self) -> None:
        self.clear_terminal()
        self._console.print(self._line)
        self._console.file.flush()

    def _take_down(self, number: signal.Signals) -> None:
        from tasks.reporting.tracking import stop_run

        services, cluster = Services(self._run.home), self._run.config.cluster.build(self._run.home)

        def crash() -> None:
            services.crash_own(f"Ended by {number.name}: {self._line}.")

        def stop() -> None:
            if self.is_recorded:
                stop_run(self._run)

        for act in (
            crash,
            cluster.kill,
            crash,  # what the flow began in the meantime
            stop,
        ):
            with contextlib.suppress(Exception):  # whatever it is, the end goes on
                act()


def _silence() -> None:
    """Nothing that falls over now is of interest."""
    logging.disable()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
