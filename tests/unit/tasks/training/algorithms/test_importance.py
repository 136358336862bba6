"""Importance weights of the trainer against the engine."""

import numpy as np
import pytest
import torch

from tasks.training.algorithms.base import Tokens
from tasks.training.algorithms.importance import tis_weights

OLD = torch.tensor([0.0, -3.0], requires_grad=True)
TOKENS = Tokens(OLD, OLD, torch.tensor([-3.0, 0.0]), torch.ones(2))


def test_a_weight_is_cut_at_the_cap_and_carries_no_gradient():
    weights = tis_weights(TOKENS, 2.0)
    assert weights.tolist() == pytest.approx([2.0, np.exp(-3.0)])
    assert not weights.requires_grad


def test_without_a_cap_every_token_weighs_the_same():
    assert tis_weights(TOKENS, None) == 1.0
