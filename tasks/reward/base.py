"""What every reward offers, and what it gives for a response."""

from dataclasses import dataclass
from math import isfinite
from typing import Protocol

from tasks.record.samples import Problem


@dataclass(frozen=True, slots=True)
class Grade:
    """What a response earned, or why that cannot be told: exactly one of the two."""

    reward: float | None = None
    """Finite; 1 is the full reward, of a right response."""
    answer: str | None = None
    """The answer that was read from the response, in one way of writing it; None when there is none.

    Equal answers have equal texts: evaluation takes votes on them.
    """
    ungraded_because: str | None = None
    """Why there is no reward."""

    def __post_init__(self) -> None:
        if (self.reward is None) == (self.ungraded_because is None):
            raise ValueError("a grade has either a reward or the reason why it has none")
        if self.reward is not None and not isfinite(self.reward):
            raise ValueError(f"a reward must be finite, not {self.reward}")

    @property
    def is_right(self) -> bool:
        """Whether the response earned the full reward."""
        return self.reward is not None and self.reward >= 1


class Reward(Protocol):
    """Grades responses of training and of evaluation alike; a function of problem and response alone."""

    def grade(self, problem: Problem, response: str) -> Grade:
        """What the response earns. Whatever it raises leaves this response ungraded; the error is told."""

    def check_gold(self, answer: str) -> str:
        """A right answer that a file of problems gives, as Problem.answer is to have it.

        Raises ValueError, `must be ...`, when responses cannot be graded by it.
        """
