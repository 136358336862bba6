"""The layers that megatron.core lacks without TransformerEngine: a fast RMSNorm and SDPA attention."""

from typing import Any

import torch
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from tasks.training.architecture import Architecture


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


def block_spec(architecture: Architecture) -> TransformerBlockSubmodules:
    """What the decoder is built of."""
    qk_norm = RMSNorm if architecture.qk_norm else None
    attention = SelfAttentionSubmodules(
        linear_qkv=ColumnParallelLinear,
        core_attention=CausalAttention,
        linear_proj=BiasedRowParallelLinear if architecture.output_bias else RowParallelLinear,
        q_layernorm=qk_norm,
        k_layernorm=qk_norm,
    )
    layer = TransformerLayerSubmodules(
        input_layernorm=RMSNorm,
        self_attention=ModuleSpec(
            module=SelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=attention
        ),
        self_attn_bda=get_bias_dropout_add,
        pre_mlp_layernorm=RMSNorm,
        mlp=ModuleSpec(
            module=MLP,
            submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear),
        ),
        mlp_bda=get_bias_dropout_add,
    )
    layers = [ModuleSpec(module=TransformerLayer, submodules=layer)] * architecture.layers
    return TransformerBlockSubmodules(layer_specs=layers, layer_norm=RMSNorm)
