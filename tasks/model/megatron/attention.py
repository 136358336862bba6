"""Attention layers: SDPA in the middle, and what megatron.core lacks without TransformerEngine around it."""

from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.multi_latent_attention import MLASelfAttention, MLASelfAttentionSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from tasks.model.architecture import GroupedAttention, LatentAttention
from tasks.model.megatron.norm import RMSNorm

_CAUSAL = {"attn_mask_type": AttnMaskType.causal}


class CausalAttention(nn.Module):
    """Causal scaled-dot-product attention with grouped queries, on right-padded sequences."""

    def __init__(self, config: TransformerConfig, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self._scale = softmax_scale

    def forward(self, query_SBHD: Tensor, key_SBGD: Tensor, value_SBGD: Tensor, *_: Any, **__: Any) -> Tensor:
        """Attention output of shape [S, B, H * D]. The causal mask alone is enough when padding is right."""
        query, key, value = (tensor.permute(1, 2, 0, 3) for tensor in (query_SBHD, key_SBGD, value_SBGD))
        grouped = query.shape[1] != key.shape[1]
        output_BHSD = scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=self._scale, enable_gqa=grouped
        )
        return output_BHSD.permute(2, 0, 1, 3).flatten(2)


class BiasedRowParallelLinear(RowParallelLinear):
    """A row-parallel projection that has a bias although the config's other linear layers have none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "bias": True})


class LatentNorm(RMSNorm):
    """The norm of a latent, whose epsilon is not the config's: every DeepSeek model has 1e-6 here."""

    def __init__(self, config: TransformerConfig, hidden_size: int, **_: Any) -> None:
        super().__init__(config, hidden_size, eps=1e-6)


class WholeLinear(nn.Module):
    """A projection that each tensor-parallel rank holds whole and applies to its share of the sequence."""

    def __init__(self, config: TransformerConfig, input_size: int, output_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(output_size, input_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """The projection, and no bias."""
        return linear(x, self.weight), None


class LatentSelfAttention(MLASelfAttention):
    """Megatron's latent attention with whole down projections, as it has them with TransformerEngine.

    With those that it splits without, the gradient of the keys' rotated part is not summed over the ranks.
    """

    def __init__(self, config: TransformerConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        for name in ("linear_q_down_proj", "linear_kv_down_proj"):
            if hasattr(self, name):
                split = getattr(self, name)
                setattr(self, name, WholeLinear(config, split.input_size, split.output_size))


def attention_spec(part: GroupedAttention | LatentAttention) -> ModuleSpec:
    """What a layer's attention is built of."""
    if isinstance(part, LatentAttention):
        return ModuleSpec(
            module=LatentSelfAttention,
            params=_CAUSAL,
            submodules=MLASelfAttentionSubmodules(
                linear_q_proj=ColumnParallelLinear,
                linear_q_down_proj=ColumnParallelLinear,
                linear_q_up_proj=ColumnParallelLinear,
                linear_kv_down_proj=ColumnParallelLinear,
                linear_kv_up_proj=ColumnParallelLinear,
                core_attention=CausalAttention,
                linear_proj=RowParallelLinear,
                q_layernorm=LatentNorm,
                kv_layernorm=LatentNorm,
            ),
        )
    qk_norm = RMSNorm if part.qk_norm else None
    return ModuleSpec(
        module=SelfAttention,
        params=_CAUSAL,
        submodules=SelfAttentionSubmodules(
            linear_qkv=ColumnParallelLinear,
            core_attention=CausalAttention,
            linear_proj=BiasedRowParallelLinear if part.output_bias else RowParallelLinear,
            q_layernorm=qk_norm,
            k_layernorm=qk_norm,
        ),
    )
