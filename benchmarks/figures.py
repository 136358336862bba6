"""What a benchmark gives, and how it takes time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

REPEATS = 5
T = TypeVar("T")


@dataclass(frozen=True)
class Figure:
    """One measured part: median seconds and what it did in them."""

    part: str
    seconds: float
    amount: str


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Median seconds of REPEATS calls after one to warm up, and the last result."""
    result = action()
    seconds = []
    for _ in range(REPEATS):
        started = time.monotonic()
        result = action()
        seconds.append(time.monotonic() - started)
    return median(seconds), result
