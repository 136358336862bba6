"""A reward of one's own: chosen by its import path alone, known to no other file."""

from configs.reward import RewardSection
from tasks.record.samples import Problem
from tasks.reward.base import Grade


class DigitShare(RewardSection):
    """The share of the answer's digits that the end of the response has at their places."""

    owner = "tests.support.own_reward:DigitShareReward"
    longest: int = 100
    """Characters; a longer response cannot be graded."""


class DigitShareReward:
    """See DigitShare."""

    def __init__(self, config: DigitShare) -> None:
        self._longest = config.longest

    def grade(self, problem: Problem, response: str) -> Grade:
        """The answer is as many characters of the response's end as the right answer has."""
        if len(response) > self._longest:
            raise ValueError(f"a response of {len(response)} characters is too long")
        answer = response[-len(problem.answer) :]
        right = sum(a == b for a, b in zip(answer, problem.answer, strict=False))
        return Grade(right / len(problem.answer), answer)

    def check_gold(self, answer: str) -> str:
        """Digits; ValueError for anything else."""
        if not answer.isdigit():
            raise ValueError(f"must be digits, not {answer!r}")
        return answer
