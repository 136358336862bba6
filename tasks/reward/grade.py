"""Rewards of responses, and what a step's rewards and lengths look like."""

from dataclasses import replace

import numpy as np
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


def decode_responses(tokenizer: PreTrainedTokenizerBase, responses: list[tuple[int, ...]]) -> list[str]:
    """Texts of response tokens, special tokens left out."""
    return [
        tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        for tokens in responses
    ]


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


def reward_metrics(batch: RolloutBatch) -> dict[str, float]:
    """Metrics of a graded batch by MLflow name.

    reward/mean and reward/std are over graded samples (population deviation); reward/pass_rate is the share of
    groups with a sample of positive reward; reward/zero_std_groups counts groups whose rewards are
    all equal, reward/ungraded samples without a reward. The first four are absent when nothing is graded.
    rollout/tokens counts response tokens; rollout/truncated_fraction is the share of samples cut at the limit.
    """
    samples = list(batch.samples())
    lengths = [len(sample.response_tokens) for sample in samples]
    graded_groups = [rewards for group in batch.groups if (rewards := _rewards(group))]
    metrics = {
        "reward/ungraded": float(len(samples) - sum(map(len, graded_groups))),
        "rollout/tokens": float(sum(lengths)),
        "rollout/response_length_mean": float(np.mean(lengths)),
        "rollout/truncated_fraction": float(np.mean([sample.finish_reason == "length" for sample in samples])),
    }
    if graded_groups:
        rewards = np.concatenate(graded_groups)
        metrics |= {
            "reward/mean": float(rewards.mean()),
            "reward/std": float(rewards.std()),
            "reward/pass_rate": float(np.mean([max(group) > 0 for group in graded_groups])),
            "reward/zero_std_groups": float(sum(min(group) == max(group) for group in graded_groups)),
        }
    return metrics


def _rewards(group: Group) -> list[float]:
    return [sample.reward for sample in group.samples if sample.reward is not None]
