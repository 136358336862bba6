"""The reward for the right integer in a box."""

from tasks.record.samples import Problem
from tasks.reward.boxed import extract_boxed
from tasks.reward.integers import read_integer


def read_answer(problem: Problem, response: str) -> int | None:
    r"""The integer in the last closed `\boxed{...}` of the response; None when there is none."""
    content = extract_boxed(problem.response_prefix + response)
    return None if content is None else read_integer(content)


def grade(problem: Problem, response: str) -> float:
    """1.0 for the right answer in a closed box, else 0.0.

    A truncated response is judged like any other, so it earns 0.0 unless its box was closed in time.
    """
    return float(read_answer(problem, response) == problem.answer)
