"""Responses as the text that is judged, and their grades."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from tasks.record.samples import Problem
from tasks.reward.base import Grade, Reward


def decode_responses(tokenizer: PreTrainedTokenizerBase, responses: Sequence[Sequence[int]]) -> list[str]:
    """Texts of response tokens, special tokens left out."""
    tokens = [list(response) for response in responses]
    return tokenizer.batch_decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def grade_responses(
    reward: Reward,
    problem: Problem,
    responses: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase,
) -> list[Grade]:
    """The grade of each response, given as tokens; one that the reward fails on is ungraded, not a 0."""
    return [grade_text(reward, problem, text) for text in decode_responses(tokenizer, responses)]


def grade_text(reward: Reward, problem: Problem, response: str) -> Grade:
    """The grade of a response, given as text; ungraded when the reward raises."""
    try:
        return reward.grade(problem, response)
    except Exception as error:  # a reward is anyone's code, and one response must not end the run
        return Grade(ungraded_because=" ".join(f"{type(error).__name__}: {error}".split()))
