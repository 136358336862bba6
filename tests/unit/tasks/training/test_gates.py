"""Each gate lets its bound pass and refuses more, in one line that says what to do."""

import math

import pytest
import torch

from configs.training import GateConfig
from tasks.training import gates
from tasks.training.divergence import measure
from tasks.training.errors import StepRefused


def divergence(difference):
    one = torch.ones(1)
    return measure(one, one + difference, torch.tensor([True]), None)


def test_divergence_gate():
    bounded = GateConfig(max_logprob_diff=0.5)
    gates.check_divergence(3, divergence(0.5), bounded)
    gates.check_divergence(3, divergence(9.0), GateConfig())
    with pytest.raises(StepRefused, match=r"step 3 refused.*reaches 0\.75 .*gates\.max_logprob_diff 0\.5"):
        gates.check_divergence(3, divergence(0.75), bounded)
    with pytest.raises(StepRefused, match="nan"):
        gates.check_divergence(3, divergence(math.nan), bounded)


def test_gradient_norm_gate():
    bounded = GateConfig(max_grad_norm=2)
    gates.check_update(1, 0.0, 2.0, bounded)
    gates.check_update(1, 0.0, 1e9, GateConfig())
    with pytest.raises(StepRefused, match=r"gradient norm 2\.5 is above gates\.max_grad_norm 2"):
        gates.check_update(1, 0.0, 2.5, bounded)


@pytest.mark.parametrize(
    ("loss", "norm", "named"), [(math.nan, 1.0, "loss"), (0.0, math.inf, "gradient norm")]
)
def test_non_finite_values_always_stop(loss, norm, named):
    with pytest.raises(StepRefused, match=f"{named} is (nan|inf), which is not finite"):
        gates.check_update(1, loss, norm, GateConfig())


def test_non_finite_log_probabilities_always_stop():
    gates.check_logprobs(1, torch.zeros(4))
    with pytest.raises(StepRefused, match="2 of 4 trainer log-probabilities are not finite"):
        gates.check_logprobs(1, torch.tensor([0.0, math.nan, -math.inf, -1.0]))
