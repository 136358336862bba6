"""The DAPO loss against a float64 reference in numpy, gradient included."""

import numpy as np
import pytest
import torch

from configs.training import AlgorithmConfig
from tasks.training.losses.dapo import dapo_loss, tis_weights


def reference(new, old, rollout, advantages, config):
    """Loss of each token, and its derivative by the new log-probability."""
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
    config = AlgorithmConfig(tis_cap=tis_cap)
    new, *rest = (torch.from_numpy(array).float() for array in tokens)
    new.requires_grad_()
    result = dapo_loss(new, *rest, config)
    result.loss_N.sum().backward()
    expected_loss, expected_gradient = reference(*tokens, config)
    assert result.loss_N.detach().numpy() == pytest.approx(expected_loss, abs=2e-5)
    assert new.grad.numpy() == pytest.approx(expected_gradient, abs=2e-5)
    assert torch.equal(result.clipped_N.bool(), new.grad == 0)
    assert 0.05 < result.clipped_N.mean() < 0.9


def test_on_policy_the_gradient_is_the_policy_gradient():
    old = torch.tensor([-1.0, -2.0])
    new, advantages = old.clone().requires_grad_(), torch.tensor([1.5, -0.5])
    dapo_loss(new, old, old, advantages, AlgorithmConfig()).loss_N.sum().backward()
    assert torch.equal(new.grad, -advantages)


def test_tis_weight_is_cut_at_the_cap_and_carries_no_gradient():
    old = torch.tensor([0.0, -3.0], requires_grad=True)
    weights = tis_weights(old, torch.tensor([-3.0, 0.0]), 2.0)
    assert weights.tolist() == pytest.approx([2.0, np.exp(-3.0)])
    assert not weights.requires_grad
