"""DAPO: group-relative advantages, and a clipped loss with truncated importance sampling."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

import torch
from torch import Tensor

from configs.algorithm import DapoAlgorithm
from tasks.record.samples import RolloutBatch
from tasks.training.algorithms.base import Tokens
from tasks.training.algorithms.importance import tis_weights

EPSILON = 1e-6


class Dapo:
    """Yu et al., DAPO, arXiv:2503.14476."""

    columns = ("loss", "clipped")

    def __init__(self, config: DapoAlgorithm) -> None:
        self._config = config

    def advantages(self, batch: RolloutBatch, values: Sequence[Tensor] | None) -> list[float | None]:
        """Those of each group by itself; without use for a critic's values."""
        groups = ([sample.reward for sample in group.samples] for group in batch.groups)
        return [advantage for rewards in groups for advantage in group_advantages(rewards)]

    def loss(self, tokens: Tokens) -> dict[str, Tensor]:
        """The columns of dapo_loss."""
        return dapo_loss(tokens, self._config)

    def metrics(self, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """The fraction of tokens whose gradient the clip took away."""
        return {"policy/clip_fraction": columns["clipped"].mean().item()}


def group_advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """Group-relative advantages, A_i = (R_i - mean(R)) / (std(R) + 1e-6).

    Mean and sample standard deviation (n - 1) are taken over the graded samples; an ungraded one (None) gets
    no advantage. No sample does when the graded rewards have no spread, fewer than two of them included: such
    a group holds no signal and is left out (the zero-variance filter of DAPO).

    Source: Shao et al., DeepSeekMath (GRPO), arXiv:2402.03300, section 4.1; Yu et al., DAPO,
    arXiv:2503.14476, section 3.2.
    """
    graded = [reward for reward in rewards if reward is not None]
    if len(set(graded)) < 2:
        return [None] * len(rewards)
    mean, std = fmean(graded), stdev(graded)
    return [None if reward is None else (reward - mean) / (std + EPSILON) for reward in rewards]


def dapo_loss(tokens: Tokens, config: DapoAlgorithm) -> dict[str, Tensor]:
    """Column "loss", w * -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), and column "clipped", 1 where the
    clip took the gradient away, else 0.

    r = exp(logprob - old_logprob), old being the trainer before the step; w is the TIS weight.

    Source: Yu et al., DAPO, arXiv:2503.14476, equation 8 (token mean, decoupled clip, no KL term).
    """
    ratio_N = (tokens.logprobs_N - tokens.old_logprobs_N).exp()
    unclipped_N = ratio_N * tokens.advantages_N
    clipped_N = ratio_N.clamp(1 - config.clip_low, 1 + config.clip_high) * tokens.advantages_N
    loss_N = -torch.minimum(unclipped_N, clipped_N) * tis_weights(tokens, config.tis_cap)
    return {"loss": loss_N, "clipped": (clipped_N < unclipped_N).float()}
