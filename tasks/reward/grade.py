"""Rewards of responses."""

from collections.abc import Sequence
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from tasks.reward.boxed import extract_boxed
from tasks.reward.integers import read_integer
from tasks.samples import Group, Problem, RolloutBatch


def read_answer(problem: Problem, response: str) -> int | None:
    r"""The integer in the last closed `\boxed{...}` of the response; None when there is none."""
    content = extract_boxed(problem.response_prefix + response)
    return None if content is None else read_integer(content)


def grade(problem: Problem, response: str) -> float:
    """1.0 for the right answer in a closed box, else 0.0.

    A truncated response is judged like any other, so it earns 0.0 unless its box was closed in time.
    """
    return float(read_answer(problem, response) == problem.answer)


def decode_responses(tokenizer: PreTrainedTokenizerBase, responses: Sequence[Sequence[int]]) -> list[str]:
    """Texts of response tokens, special tokens left out."""
    tokens = [list(response) for response in responses]
    return tokenizer.batch_decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def grade_batch(batch: RolloutBatch, tokenizer: PreTrainedTokenizerBase) -> RolloutBatch:
    """The batch with a reward on each sample; an aborted sample stays ungraded (None), it is not a 0."""
    return replace(batch, groups=tuple(_grade_group(group, tokenizer) for group in batch.groups))


def _grade_group(group: Group, tokenizer: PreTrainedTokenizerBase) -> Group:
    texts = decode_responses(tokenizer, [sample.response_tokens for sample in group.samples])
    samples = tuple(
        sample.graded(None if sample.finish_reason == "abort" else grade(group.problem, text))
        for sample, text in zip(group.samples, texts, strict=True)
    )
    return replace(group, samples=samples)
