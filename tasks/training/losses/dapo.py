"""The DAPO policy loss with truncated importance sampling."""

import torch
from torch import Tensor

from configs.training import AlgorithmConfig
from tasks.model.megatron.passes import TokenLosses


def tis_weights(old_logprobs_N: Tensor, rollout_logprobs_N: Tensor, cap: float) -> Tensor:
    """Truncated importance weights min(pi_old / mu, cap) of the trainer against the engine, detached.

    Source: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025.
    """
    return (old_logprobs_N - rollout_logprobs_N).detach().exp().clamp(max=cap)


def dapo_loss(
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    rollout_logprobs_N: Tensor,
    advantages_N: Tensor,
    config: AlgorithmConfig,
) -> TokenLosses:
    """Loss of each token, w * -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A); its mean over all tokens of
    the batch is what is minimised.

    r = exp(logprob - old_logprob), old being the trainer before the update; w is the TIS weight, 1 when
    tis_cap is None. All arguments are fp32 of shape [N]; only logprobs_N carries a gradient.

    Source: Yu et al., DAPO, arXiv:2503.14476, equation 8 (token mean, decoupled clip, no KL term).
    """
    ratio_N = (logprobs_N - old_logprobs_N).exp()
    unclipped_N = ratio_N * advantages_N
    clipped_N = ratio_N.clamp(1 - config.clip_low, 1 + config.clip_high) * advantages_N
    loss_N = -torch.minimum(unclipped_N, clipped_N)
    if config.tis_cap is not None:
        loss_N = loss_N * tis_weights(old_logprobs_N, rollout_logprobs_N, config.tis_cap)
    return TokenLosses(loss_N, (clipped_N < unclipped_N).float())
