"""Rewards of responses."""

import logging
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from tasks.record.samples import Group, RolloutBatch
from tasks.reward.base import Grade, Reward
from tasks.reward.responses import grade_responses

log = logging.getLogger(__name__)

ABORTED = Grade(ungraded_because="the response was aborted")


def grade_batch(batch: RolloutBatch, reward: Reward, tokenizer: PreTrainedTokenizerBase) -> RolloutBatch:
    """The batch with a reward on each sample, or the reason why it has none: an aborted sample is not a 0."""
    graded = replace(batch, groups=tuple(_grade_group(group, reward, tokenizer) for group in batch.groups))
    reasons = [sample.ungraded_because for sample in graded.samples() if sample.ungraded_because]
    if reasons:
        log.warning("step %d: %d samples are ungraded, the first: %s", batch.step, len(reasons), reasons[0])
    return graded


def _grade_group(group: Group, reward: Reward, tokenizer: PreTrainedTokenizerBase) -> Group:
    finished = [sample for sample in group.samples if sample.finish_reason != "abort"]
    responses = [sample.response_tokens for sample in finished]
    grades = iter(grade_responses(reward, group.problem, responses, tokenizer))
    each = (ABORTED if sample.finish_reason == "abort" else next(grades) for sample in group.samples)
    samples = tuple(
        sample.graded(grade.reward, grade.ungraded_because)
        for sample, grade in zip(group.samples, each, strict=True)
    )
    return replace(group, samples=samples)
