"""When something was done, so that what overlaps can be told from what was waited for."""

import time
from collections.abc import Iterable
from typing import NamedTuple


class Interval(NamedTuple):
    """From `start` to `end`, Unix time in seconds."""

    start: float
    end: float

    @classmethod
    def since(cls, start: float) -> "Interval":
        """From `start` until now."""
        return cls(start, time.time())

    @property
    def seconds(self) -> float:
        """How long it is; 0 for one that ends before it starts."""
        return max(0.0, self.end - self.start)


def covered(intervals: Iterable[Interval], window: Interval) -> float:
    """Seconds of the window that lie in at least one of the intervals."""
    total, reached = 0.0, window.start
    for start, end in sorted(intervals):
        start, end = max(start, reached), min(end, window.end)
        if end > start:
            total, reached = total + end - start, end
    return total
