"""Drawing tokens: a random stream for each sample, and inversion of the cumulative distribution."""

from collections.abc import Sequence

import numpy as np
import torch

from configs.errors import RunFailure

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


class NonFiniteLogits(RunFailure):
    """The model gave NaN or infinite logits: its weights are broken."""


def uniforms(seeds: Sequence[int], positions: int) -> torch.Tensor:
    """[seeds, positions] float64 in [0, 1): number (seed, position) of a counter-based stream.

    SplitMix64 (Steele, Lea and Flood 2014) started at the mixed seed; the top 53 bits become the number.
    """
    starts_B1 = _mix(np.array([seed % 2**64 for seed in seeds], dtype=np.uint64))[:, None]
    counters_T = np.arange(1, positions + 1, dtype=np.uint64) * _GAMMA
    bits_BT = _mix(starts_B1 + counters_T) >> np.uint64(11)
    return torch.from_numpy(bits_BT.astype(np.float64) * 2.0**-53)


def draw(
    logits_BV: torch.Tensor, temperatures_B: torch.Tensor, uniforms_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [B] and their log-probabilities [B] under softmax(logits / temperature), fp32.

    A token is the first whose cumulative float64 probability exceeds the row's uniform number. Temperature 0
    takes the largest logit and reports at temperature 1. Raises NonFiniteLogits.
    """
    greedy_B = temperatures_B == 0
    scaled_BV = logits_BV / torch.where(greedy_B, 1.0, temperatures_B)[:, None]
    if bool(greedy_B.all()):
        tokens_B = scaled_BV.argmax(-1)
    else:
        tokens_B = torch.where(greedy_B, scaled_BV.argmax(-1), _invert(scaled_BV, uniforms_B))
    logprobs_B = scaled_BV.gather(-1, tokens_B[:, None])[:, 0] - scaled_BV.logsumexp(-1)
    if not bool(torch.isfinite(logprobs_B).all()):
        raise NonFiniteLogits("the model gives non-finite logits: load sound weights")
    return tokens_B, logprobs_B


def _invert(scaled_BV: torch.Tensor, uniforms_B: torch.Tensor) -> torch.Tensor:
    cumulative_BV = scaled_BV.softmax(-1, dtype=torch.float64).cumsum(-1)
    targets_B1 = uniforms_B[:, None] * cumulative_BV[:, -1:]
    tokens_B = torch.searchsorted(cumulative_BV, targets_B1, right=True)[:, 0]
    return tokens_B.clamp_(max=scaled_BV.shape[-1] - 1)


def _mix(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))
