"""Token log-probabilities from logits that are split over the vocabulary."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region
from torch import Tensor


class TokenScores(NamedTuple):
    """fp32, natural logs, of softmax(logits / temperature)."""

    logprobs_N: Tensor
    entropy_N: Tensor


def token_scores(logits_NV: Tensor, targets_N: Tensor, temperature: float, vocab_size: int) -> TokenScores:
    """Log-probabilities of the targets and entropies of their distributions.

    logits_NV holds this tensor-parallel rank's columns of the padded vocabulary; columns at and above
    vocab_size do not count. With z = logits - max and S = sum exp(z):
    log p(t) = z_t - log S and entropy = log S - sum(z exp(z)) / S, sums over all ranks. Differentiable.
    """
    group = parallel_state.get_tensor_model_parallel_group()
    start = group.rank() * logits_NV.shape[1]
    scaled_NV = logits_NV[:, : max(vocab_size - start, 0)].float() / temperature
    max_N = scaled_NV.detach().amax(dim=1)
    if group.size() > 1:
        dist.all_reduce(max_N, dist.ReduceOp.MAX, group=group)
    z_NV = scaled_NV - max_N[:, None]
    exp_NV = z_NV.exp()
    local_N = targets_N - start
    here_N = (local_N >= 0) & (local_N < z_NV.shape[1])
    target_N = z_NV.gather(1, local_N.where(here_N, 0)[:, None])[:, 0].where(here_N, 0.0)
    parts_3N = torch.stack([target_N, exp_NV.sum(1), (z_NV.detach() * exp_NV.detach()).sum(1)])
    target_N, sum_N, weighted_N = reduce_from_tensor_model_parallel_region(parts_3N)
    log_sum_N = sum_N.log()
    return TokenScores(target_N - log_sum_N, (log_sum_N - weighted_N / sum_N).detach())
