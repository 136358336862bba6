"""Bounds that a step must keep before its optimizer step is taken."""

import math

from torch import Tensor

from configs.training import GateConfig
from tasks.training.divergence import Divergence
from tasks.training.errors import StepRefused


def check_logprobs(step: int, logprobs_N: Tensor) -> None:
    """Refuse a step whose recomputed log-probabilities are not all finite."""
    broken = int((~logprobs_N.isfinite()).sum())
    if broken:
        raise StepRefused(
            f"step {step} refused: {broken} of {len(logprobs_N)} trainer log-probabilities are not finite: "
            "start a new run with a lower trainer.learning_rate"
        )


def check_divergence(step: int, divergence: Divergence, gates: GateConfig) -> None:
    """Refuse a step whose on-version tokens disagree by more than gates.max_logprob_diff."""
    value, bound = divergence.abs_diff_max_on_version, gates.max_logprob_diff
    if bound is not None and not value <= bound:  # also refuses nan
        raise StepRefused(
            f"step {step} refused: |trainer - rollout| log-probability reaches {value:.3g} nats on tokens of "
            f"the trainer's own version, above gates.max_logprob_diff {bound:g}: the engines serve other "
            "weights or compute them differently; to accept it: "
            "overnight resume RUN --set gates.max_logprob_diff=X"
        )


def check_update(step: int, loss: float, grad_norm: float, gates: GateConfig) -> None:
    """Refuse an optimizer step with a non-finite loss or gradient, or one above gates.max_grad_norm."""
    for name, value in (("loss", loss), ("gradient norm", grad_norm)):
        if not math.isfinite(value):
            raise StepRefused(
                f"step {step} refused: {name} is {value}, which is not finite: "
                "start a new run with a lower trainer.learning_rate"
            )
    bound = gates.max_grad_norm
    if bound is not None and grad_norm > bound:
        raise StepRefused(
            f"step {step} refused: gradient norm {grad_norm:.4g} is above gates.max_grad_norm {bound:g}: "
            "to accept it: overnight resume RUN --set gates.max_grad_norm=X"
        )
