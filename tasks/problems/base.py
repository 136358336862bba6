"""What every source of problems offers."""

from typing import Protocol

from configs.errors import UserError
from tasks.record.samples import Problem


class DataError(UserError):
    """Problem data is missing or broken; the message is one line that says where."""


class ProblemSource(Protocol):
    """Problems to practise on, and held-out ones that practice never sees."""

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """Problems number start .. start + count - 1 of the endless stream that belongs to `seed`.

        Problem number n depends on seed and n alone, so `start` serves as a cursor.
        """

    def held_out(self, seed: int | None, count: int) -> list[Problem]:
        """At most `count` held-out problems: always the same for None, another draw for each seed."""
