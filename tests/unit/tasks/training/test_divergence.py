"""Divergence figures against float64 references in numpy."""

import numpy as np
import pytest
import torch

from tasks.training.divergence import measure


def test_figures_against_numpy():
    generator = np.random.default_rng(1)
    trainer = generator.normal(-2, 1, 1000).astype(np.float32)
    rollout = (trainer + generator.normal(0, 0.5, 1000)).astype(np.float32)
    on_version = generator.random(1000) < 0.7
    measured = [torch.from_numpy(each) for each in (trainer, rollout, on_version)]
    found = measure(measured[0], measured[1], measured[2], tis_cap=2.0)

    difference = rollout.astype(np.float64) - trainer.astype(np.float64)
    weight = np.exp(-difference)
    assert found.abs_diff_mean == pytest.approx(np.abs(difference).mean())
    assert found.abs_diff_max == np.abs(difference).max()
    assert found.abs_diff_p99 == np.sort(np.abs(difference))[989]
    assert found.abs_diff_max_on_version == np.abs(difference[on_version]).max()
    assert found.kl_k1 == pytest.approx(difference.mean())
    assert found.kl_k3 == pytest.approx((weight - 1 + difference).mean())
    assert found.ess == pytest.approx(weight.sum() ** 2 / (1000 * (weight**2).sum()))
    assert found.tis_clip_fraction == pytest.approx((weight > 2).mean())
    assert found.mismatched_version_tokens == (~on_version).sum()


def test_equal_log_probabilities_diverge_nowhere():
    same = torch.tensor([-1.0, -2.0, -0.5])
    metrics = measure(same, same, torch.ones(3, dtype=torch.bool), tis_cap=2.0).metrics()
    assert metrics.pop("divergence/ess") == pytest.approx(1)
    assert set(metrics.values()) == {0.0}


def test_only_on_version_tokens_reach_the_gated_maximum():
    trainer, rollout = torch.tensor([-1.0, -1.0]), torch.tensor([-1.5, -9.0])
    assert measure(trainer, rollout, torch.tensor([True, False]), None).abs_diff_max_on_version == 0.5
    assert measure(trainer, rollout, torch.tensor([False, False]), None).abs_diff_max_on_version == 0.0
