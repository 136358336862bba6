"""RMSNorm, which megatron.core takes from TransformerEngine."""

from typing import Any

import torch
from megatron.core.transformer import TransformerConfig
from torch import Tensor, nn
from torch.nn.functional import rms_norm


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension (Zhang and Sennrich, arXiv:1910.07467)."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise; the shape stays."""
        return rms_norm(x, self.weight.shape, self.weight, self._eps)
