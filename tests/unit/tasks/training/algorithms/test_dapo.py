"""DAPO against float64 references in numpy, the loss's gradient included."""

import numpy as np
import pytest
import torch

from configs.algorithm import DapoAlgorithm
from tasks.training.algorithms.base import Tokens
from tasks.training.algorithms.dapo import Dapo, dapo_loss, group_advantages
from tests.support.training import graded_batch


def reference(tokens, config):
    """Loss of each token, and its derivative by the new log-probability."""
    new, old, rollout, advantages = tokens
    ratio = np.exp(new - old)
    clipped = np.clip(ratio, 1 - config.clip_low, 1 + config.clip_high)
    weight = 1.0 if config.tis_cap is None else np.minimum(np.exp(old - rollout), config.tis_cap)
    active = ratio * advantages <= clipped * advantages
    loss = -weight * np.minimum(ratio * advantages, clipped * advantages)
    return loss, np.where(active, -weight * ratio * advantages, 0.0)


@pytest.fixture
def tokens():
    generator = np.random.default_rng(0)
    old = generator.normal(-2, 1, 4000)
    new, rollout = old + generator.normal(0, 0.4, 4000), old + generator.normal(0, 0.7, 4000)
    return new, old, rollout, generator.normal(0, 1, 4000)


@pytest.mark.parametrize("tis_cap", [2.0, 0.5, None])
def test_loss_and_gradient(tokens, tis_cap):
    config = DapoAlgorithm(tis_cap=tis_cap)
    new, old, rollout, advantages = [torch.from_numpy(array).float() for array in tokens]
    new.requires_grad_()
    columns = dapo_loss(Tokens(new, old, rollout, advantages), config)
    columns["loss"].sum().backward()
    expected_loss, expected_gradient = reference(tokens, config)
    assert new.grad is not None
    assert columns["loss"].detach().numpy() == pytest.approx(expected_loss, abs=2e-5)
    assert new.grad.numpy() == pytest.approx(expected_gradient, abs=2e-5)
    assert (columns["clipped"].bool() == (new.grad == 0)).all()
    metrics = Dapo(config).metrics(columns)
    assert metrics == {"policy/clip_fraction": pytest.approx((expected_gradient == 0).mean(), abs=1e-6)}
    assert 0.05 < metrics["policy/clip_fraction"] < 0.9


def test_on_policy_the_gradient_is_the_policy_gradient():
    old = torch.tensor([-1.0, -2.0])
    new, advantages = old.clone().requires_grad_(), torch.tensor([1.5, -0.5])
    dapo_loss(Tokens(new, old, old, advantages), DapoAlgorithm())["loss"].sum().backward()
    assert new.grad is not None and torch.equal(new.grad, -advantages)


def test_advantages_are_the_standardised_rewards():
    rewards = [0.0, 1.0, 1.0, 0.25]
    expected = (np.array(rewards) - np.mean(rewards)) / (np.std(rewards, ddof=1) + 1e-6)
    assert group_advantages(rewards) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rewards", [[1.0, 1.0, 1.0], [0.0, 0.0], [None, 1.0], [None, None], []])
def test_a_group_without_spread_is_left_out(rewards):
    assert group_advantages(rewards) == [None] * len(rewards)


def test_ungraded_samples_get_none_and_do_not_count():
    with_ungraded = group_advantages([1.0, None, 0.0, None, 0.0])
    graded = [value for value in with_ungraded if value is not None]
    assert [value is None for value in with_ungraded] == [False, True, False, True, False]
    assert graded == pytest.approx(group_advantages([1.0, 0.0, 0.0]))


def test_each_group_of_a_batch_has_its_own_advantages():
    batch = graded_batch(1)
    by_group = [group_advantages([sample.reward for sample in group.samples]) for group in batch.groups]
    assert Dapo(DapoAlgorithm()).advantages(batch, None) == [value for group in by_group for value in group]
