"""What the decoder is built of."""

from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.transformer.mlp import MLP
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

from tasks.model.architecture import Architecture
from tasks.model.megatron.attention import attention_spec
from tasks.model.megatron.experts import MLP_LAYERS, experts_spec
from tasks.model.megatron.norm import RMSNorm


def block_spec(architecture: Architecture) -> TransformerBlockSubmodules:
    """The decoder's layers and its last norm."""
    layers = [_layer_spec(architecture, layer) for layer in range(architecture.layers)]
    return TransformerBlockSubmodules(layer_specs=layers, layer_norm=RMSNorm)


def _layer_spec(architecture: Architecture, layer: int) -> ModuleSpec:
    if architecture.experts is not None and architecture.has_experts(layer):
        mlp = experts_spec(architecture.experts)
    else:
        mlp = ModuleSpec(module=MLP, submodules=MLP_LAYERS)
    return ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(
            input_layernorm=RMSNorm,
            self_attention=attention_spec(architecture.attention),
            self_attn_bda=get_bias_dropout_add,
            pre_mlp_layernorm=RMSNorm,
            mlp=mlp,
            mlp_bda=get_bias_dropout_add,
        ),
    )
