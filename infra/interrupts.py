"""Signals that end a process, kept off what must not be cut in two."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a terminal, an operator and a closed terminal send to end a program."""


def end_at_once() -> None:
    """Have Ctrl-C end this process there and then, as long as it has nothing to put in order.

    Python's own answer, KeyboardInterrupt, gets lost when it strikes in the middle of an import.
    """
    signal.signal(signal.SIGINT, lambda number, _: os._exit(128 + number))


@contextmanager
def uncut() -> Iterator[None]:
    """Put off the signals that would end this process until the block is through.

    Signals are answered in the main thread, so in another one there is nothing to put off.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for missed in arrived:
            signal.raise_signal(missed)
