"""What the rewards of a step's batch look like, by MLflow name."""

from statistics import fmean, pstdev

from tasks.record.samples import Group, RolloutBatch


def reward_metrics(batch: RolloutBatch) -> dict[str, float]:
    """reward/* of a graded batch.

    mean, std (of the population) and pass_rate (share with the full reward of 1) are over graded samples,
    and absent when there are none; zero_std_groups counts groups without a spread of rewards, which hold
    no signal; ungraded counts samples without a reward.
    """
    by_group = [_rewards(group) for group in batch.groups]
    rewards = [reward for group in by_group for reward in group]
    metrics = {
        "reward/zero_std_groups": float(sum(len(set(group)) < 2 for group in by_group)),
        "reward/ungraded": float(sum(len(group.samples) for group in batch.groups) - len(rewards)),
    }
    if rewards:
        metrics["reward/mean"] = fmean(rewards)
        metrics["reward/std"] = pstdev(rewards)
        metrics["reward/pass_rate"] = fmean(reward >= 1 for reward in rewards)
    return metrics


def _rewards(group: Group) -> list[float]:
    return [sample.reward for sample in group.samples if sample.reward is not None]
