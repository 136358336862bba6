"""Importance weights of the trainer against the engine."""

from torch import Tensor

from tasks.training.algorithms.base import Tokens


def tis_weights(tokens: Tokens, cap: float | None) -> Tensor | float:
    """Truncated importance weights min(pi_old / mu, cap) of each token, detached; 1 without a cap.

    Source: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025.
    """
    if cap is None:
        return 1.0
    return (tokens.old_logprobs_N - tokens.rollout_logprobs_N).detach().exp().clamp(max=cap)
