"""GRPO advantages against a plain float64 computation."""

import numpy as np
import pytest

from tasks.training.advantages import grpo_advantages


def test_advantages_are_the_standardised_rewards():
    rewards = [0.0, 1.0, 1.0, 0.25]
    expected = (np.array(rewards) - np.mean(rewards)) / (np.std(rewards, ddof=1) + 1e-6)
    assert grpo_advantages(rewards) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rewards", [[1.0, 1.0, 1.0], [0.0, 0.0], [None, 1.0], [None, None], []])
def test_a_group_without_spread_is_left_out(rewards):
    assert grpo_advantages(rewards) is None


def test_ungraded_samples_get_none_and_do_not_count():
    with_ungraded = grpo_advantages([1.0, None, 0.0, None, 0.0])
    assert with_ungraded is not None
    graded = [value for value in with_ungraded if value is not None]
    assert [value is None for value in with_ungraded] == [False, True, False, True, False]
    assert graded == pytest.approx(grpo_advantages([1.0, 0.0, 0.0]))
