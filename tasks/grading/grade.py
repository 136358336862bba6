"""Rewards of responses."""

from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from tasks.record.samples import Group, RolloutBatch
from tasks.reward.boxed_integer import grade
from tasks.reward.responses import decode_responses


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
