"""Building the Megatron model of an architecture."""

from typing import Any

import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.transformer import MLATransformerConfig, TransformerConfig
from torch import Tensor, nn
from torch.nn.functional import silu

from configs.training import TrainerConfig
from tasks.model.architecture import Architecture, GroupedAttention, LatentAttention
from tasks.model.megatron.experts import expert_fields, reduce_over_expert_ranks
from tasks.model.megatron.layers import block_spec


def build_model(
    architecture: Architecture, config: TrainerConfig, device: torch.device
) -> DistributedDataParallel:
    """This rank's part of the model, its values not set yet, wrapped for data parallelism.

    parallel_state must be initialised. Raises ModelUnsupported when the layout does not fit the model.
    """
    architecture.check_layout(config)
    transformer = transformer_config(architecture, config)
    attention = architecture.attention
    llama3_factor = attention.rope_llama3_factor if isinstance(attention, GroupedAttention) else None
    model = GPTModel(
        config=transformer,
        transformer_layer_spec=block_spec(architecture),
        vocab_size=architecture.padded_vocab_size(config.tensor_parallel),
        max_sequence_length=architecture.max_positions,
        parallel_output=True,
        share_embeddings_and_output_weights=architecture.tied,
        position_embedding_type="rope",
        rotary_base=architecture.rope_theta,
        rope_scaling=llama3_factor is not None,
        rope_scaling_factor=llama3_factor or 1.0,
    )
    reduce_over_expert_ranks(model)
    reduction = DistributedDataParallelConfig(
        use_distributed_optimizer=False, overlap_grad_reduce=False, grad_reduce_in_fp32=True
    )
    return DistributedDataParallel(transformer, reduction, model.to(device))


def held_tensors(model: nn.Module) -> dict[str, Tensor]:
    """This rank's parameters and persistent buffers by Megatron's names; the live ones."""
    state = model.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def transformer_config(architecture: Architecture, config: TrainerConfig) -> TransformerConfig:
    """Megatron's configuration of the model; gradients are summed over tokens and divided by their count."""
    dtype = getattr(torch, config.dtype)
    attention, experts = architecture.attention, architecture.experts
    fields: dict[str, Any] = {
        "num_layers": architecture.layers,
        "hidden_size": architecture.hidden_size,
        "ffn_hidden_size": architecture.ffn_size,
        "num_attention_heads": architecture.heads,
        "normalization": "RMSNorm",
        "layernorm_epsilon": architecture.norm_eps,
        "gated_linear_unit": True,
        "activation_func": silu,
        "add_bias_linear": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "tensor_model_parallel_size": config.tensor_parallel,
        "sequence_parallel": config.tensor_parallel > 1,
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "bf16": dtype is torch.bfloat16,
        "calculate_per_token_loss": True,  # set before DDP wraps the model, or it would scale gradients again
        "finalize_model_grads_func": finalize_model_grads,
        "use_cpu_initialization": True,
        "init_method": _as_it_is,
        "output_layer_init_method": _as_it_is,
        "gradient_accumulation_fusion": False,
        "bias_dropout_fusion": False,
        "bias_activation_fusion": False,
        "apply_rope_fusion": False,
        "masked_softmax_fusion": False,
        "persist_layer_norm": False,
        **(expert_fields(experts, config.expert_parallel) if experts else {}),
    }
    match attention:
        case GroupedAttention():
            return TransformerConfig(**fields, **_grouped_fields(attention))
        case LatentAttention():
            return MLATransformerConfig(**fields, **_latent_fields(attention, architecture.rope_theta))


def _grouped_fields(part: GroupedAttention) -> dict[str, Any]:
    return {
        "num_query_groups": part.kv_heads,
        "kv_channels": part.head_dim,
        "add_qkv_bias": part.qkv_bias,
        "qk_layernorm": part.qk_norm,
    }


def _latent_fields(part: LatentAttention, rope_theta: float) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "q_lora_rank": part.query_rank,
        "kv_lora_rank": part.kv_rank,
        "qk_head_dim": part.head_dim,
        "qk_pos_emb_head_dim": part.rope_dim,
        "v_head_dim": part.value_dim,
        "rotary_base": rope_theta,
        "rope_type": "rope",
        "rotary_scaling_factor": 1.0,
    }
    if part.yarn is not None:
        fields |= {
            "rope_type": "yarn",
            "rotary_scaling_factor": part.yarn.factor,
            "original_max_position_embeddings": part.yarn.original_max_positions,
            "beta_fast": part.yarn.beta_fast,
            "beta_slow": part.yarn.beta_slow,
            "mscale": part.yarn.mscale,
            "mscale_all_dim": part.yarn.mscale_all_dim,
        }
    return fields


def _as_it_is(tensor: Tensor) -> Tensor:
    """Set no values, which come from a folder; Megatron marks split parameters where it calls this."""
    return tensor
