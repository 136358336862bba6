"""Reward metrics of a graded batch."""

from statistics import fmean, pstdev

from tasks.samples import RolloutBatch
from tasks.training.advantages import grpo_advantages


def reward_metrics(batch: RolloutBatch) -> dict[str, float]:
    """Mean and standard deviation over the graded samples, their share with the full reward of 1, and counts.

    zero_std_groups counts the groups left out because their graded samples have no spread of rewards.
    Without any graded sample only the counts are given.
    """
    rewards = [sample.reward for sample in batch.samples()]
    graded = [reward for reward in rewards if reward is not None]
    flat_groups = [
        grpo_advantages([sample.reward for sample in group.samples]) is None for group in batch.groups
    ]
    metrics = {
        "reward/zero_std_groups": float(sum(flat_groups)),
        "reward/ungraded": float(len(rewards) - len(graded)),
    }
    if graded:
        metrics["reward/mean"] = fmean(graded)
        metrics["reward/std"] = pstdev(graded)
        metrics["reward/pass_rate"] = fmean(reward >= 1 for reward in graded)
    return metrics
