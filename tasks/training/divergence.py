"""How far the trainer's log-probabilities are from the engine's on the same tokens."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Divergence:
    """Statistics over response tokens, in nats where not said otherwise. mu is the engine, pi the trainer."""

    abs_diff_mean: float
    abs_diff_max: float
    abs_diff_p99: float
    abs_diff_max_on_version: float
    """Over the tokens that the trainer's own weight version generated; 0 when there are none."""
    kl_k1: float
    kl_k3: float
    ess: float
    """Effective sample size of the token weights pi / mu, as a fraction of the tokens."""
    tis_clip_fraction: float
    """Fraction of the tokens whose weight pi / mu is cut at the TIS cap; 0 without a cap."""
    mismatched_version_tokens: int
    """Tokens that another version than the trainer's generated."""

    def metrics(self) -> dict[str, float]:
        """The figures under the names that MLflow receives."""
        return {
            "divergence/logprob_abs_diff_mean": self.abs_diff_mean,
            "divergence/logprob_abs_diff_max": self.abs_diff_max,
            "divergence/logprob_abs_diff_p99": self.abs_diff_p99,
            "divergence/kl_k1": self.kl_k1,
            "divergence/kl_k3": self.kl_k3,
            "divergence/ess": self.ess,
            "divergence/tis_clip_fraction": self.tis_clip_fraction,
            "divergence/mismatched_version_tokens": float(self.mismatched_version_tokens),
        }


def measure(
    logprobs_N: Tensor, rollout_logprobs_N: Tensor, on_version_N: Tensor, tis_cap: float | None
) -> Divergence:
    """Compare trainer with rollout log-probabilities of N >= 1 tokens; on_version_N is boolean.

    With D = log mu - log pi on tokens drawn from mu: k1 = mean(D), k3 = mean(exp(-D) + D - 1), both estimates
    of KL(mu || pi) (Schulman, "Approximating KL divergence", 2020); ess = (sum w)^2 / (N sum w^2) with
    w = exp(-D). Computed in float64.
    """
    D_N = rollout_logprobs_N.double() - logprobs_N.double()
    diff_N = D_N.abs()
    weight_N = (-D_N).exp()
    on_version_diff = diff_N[on_version_N]
    return Divergence(
        abs_diff_mean=diff_N.mean().item(),
        abs_diff_max=diff_N.max().item(),
        abs_diff_p99=diff_N.kthvalue(math.ceil(0.99 * len(diff_N))).values.item(),
        abs_diff_max_on_version=on_version_diff.max().item() if len(on_version_diff) else 0.0,
        kl_k1=D_N.mean().item(),
        kl_k3=(weight_N + D_N - 1).mean().item(),
        ess=(weight_N.sum().square() / (len(weight_N) * weight_N.square().sum())).item(),
        tis_clip_fraction=0.0 if tis_cap is None else (weight_N > tis_cap).double().mean().item(),
        mismatched_version_tokens=int(torch.count_nonzero(~on_version_N)),
    )
