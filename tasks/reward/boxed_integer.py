"""The reward for the right integer in a box."""

from configs.reward import BoxedIntegerReward
from tasks.record.samples import Problem
from tasks.reward.base import Grade
from tasks.reward.boxed import extract_boxed
from tasks.reward.integers import read_integer


class BoxedInteger:
    r"""1 for the right integer in the last closed `\boxed{...}`, else 0; see Reward.

    A truncated response is judged like any other, so it earns 0 unless its box was closed in time.
    """

    def __init__(self, _config: BoxedIntegerReward) -> None:
        pass

    def grade(self, problem: Problem, response: str) -> Grade:
        """The answer is the integer in decimal digits; None when the box is missing or holds no integer."""
        content = extract_boxed(problem.response_prefix + response)
        value = None if content is None else read_integer(content)
        answer = None if value is None else str(value)
        return Grade(float(answer == self.check_gold(problem.answer)), answer)

    def check_gold(self, answer: str) -> str:
        """The integer in decimal digits; ValueError when the text is none."""
        value = read_integer(answer)
        if value is None:
            raise ValueError(f"must be an integer of at most 64 bits, not {answer[:40]!r}")
        return str(value)
