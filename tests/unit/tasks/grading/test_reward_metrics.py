"""Reward metrics count what is left out."""

import pytest

from tasks.grading.metrics import reward_metrics
from tasks.record.samples import Group, Problem, RolloutBatch, Sample


def batch(*rewards):
    sample = Sample((1,), (), (), (), "stop")
    problem = Problem("p", "prompt", "1")
    groups = [Group(problem, tuple(sample.graded(reward) for reward in group)) for group in rewards]
    return RolloutBatch(1, tuple(groups))


def test_metrics_are_over_graded_samples():
    found = reward_metrics(batch([1.0, 0.0], [1.0, None], [0.5, 0.5]))
    assert found == {
        "reward/mean": pytest.approx(0.6),
        "reward/std": pytest.approx(0.374165738),
        "reward/pass_rate": pytest.approx(0.4),
        "reward/zero_std_groups": 2,
        "reward/ungraded": 1,
    }


def test_a_batch_without_grades_has_counts_only():
    assert reward_metrics(batch([None, None])) == {"reward/zero_std_groups": 1, "reward/ungraded": 2}
