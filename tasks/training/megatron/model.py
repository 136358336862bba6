"""Building the Megatron model of an architecture."""

import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.transformer import TransformerConfig
from torch.nn.functional import silu

from configs.training import TrainerConfig
from tasks.training.architecture import Architecture
from tasks.training.megatron.layers import block_spec


def build_model(
    architecture: Architecture, config: TrainerConfig, device: torch.device
) -> DistributedDataParallel:
    """This rank's part of the model, its values not set yet, wrapped for data parallelism.

    parallel_state must be initialised. Raises ModelUnsupported when the layout does not fit the model.
    """
    architecture.check_tensor_parallel(config.tensor_parallel)
    transformer = transformer_config(architecture, config)
    model = GPTModel(
        config=transformer,
        transformer_layer_spec=block_spec(architecture),
        vocab_size=architecture.padded_vocab_size(config.tensor_parallel),
        max_sequence_length=architecture.max_positions,
        parallel_output=True,
        share_embeddings_and_output_weights=architecture.tied,
        position_embedding_type="rope",
        rotary_base=architecture.rope_theta,
        rope_scaling=architecture.rope_llama3_factor is not None,
        rope_scaling_factor=architecture.rope_llama3_factor or 1.0,
    )
    reduction = DistributedDataParallelConfig(
        use_distributed_optimizer=False, overlap_grad_reduce=False, grad_reduce_in_fp32=True
    )
    return DistributedDataParallel(transformer, reduction, model.to(device))


def transformer_config(architecture: Architecture, config: TrainerConfig) -> TransformerConfig:
    """Megatron's configuration of the model; gradients are summed over tokens and divided by their count."""
    dtype = getattr(torch, config.dtype)
    return TransformerConfig(
        num_layers=architecture.layers,
        hidden_size=architecture.hidden_size,
        ffn_hidden_size=architecture.ffn_size,
        num_attention_heads=architecture.heads,
        num_query_groups=architecture.kv_heads,
        kv_channels=architecture.head_dim,
        normalization="RMSNorm",
        layernorm_epsilon=architecture.norm_eps,
        gated_linear_unit=True,
        activation_func=silu,
        add_bias_linear=False,
        add_qkv_bias=architecture.qkv_bias,
        qk_layernorm=architecture.qk_norm,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=config.tensor_parallel,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype is torch.bfloat16,
        calculate_per_token_loss=True,  # set before DDP wraps the model, or it would scale gradients again
        finalize_model_grads_func=finalize_model_grads,
        use_cpu_initialization=True,
        init_method=_as_it_is,
        output_layer_init_method=_as_it_is,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        apply_rope_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
    )


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    """Set no values, which come from a checkpoint; Megatron marks split parameters where it calls this."""
    return tensor
