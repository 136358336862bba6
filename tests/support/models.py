"""Tiny random models of every family that the trainer supports."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV2Config,
    DeepseekV3Config,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from tests.support.training import VOCABULARY

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LATENT: dict[str, Any] = {
    **SIZES,
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "moe_intermediate_size": 12,
    "first_k_dense_replace": 1,
    "n_shared_experts": 2,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "routed_scaling_factor": 1.5,
}
MODELS: dict[str, PretrainedConfig] = {
    "llama-tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama-untied": LlamaConfig(
        **SIZES,
        tie_word_embeddings=False,
        head_dim=12,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    "llama-long": LlamaConfig(
        **SIZES,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=False),
    "qwen3-moe": Qwen3MoeConfig(  # type: ignore[call-arg]
        **SIZES,
        head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=20,
        norm_topk_prob=True,
        tie_word_embeddings=True,
    ),
    "qwen3-moe-sparse": Qwen3MoeConfig(
        **{**SIZES, "num_hidden_layers": 3},
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=20,
        decoder_sparse_step=2,
        norm_topk_prob=False,
        attention_bias=True,
    ),
    "mixtral": MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2),
    "deepseek-v2": DeepseekV2Config(
        **LATENT,
        q_lora_rank=None,
        topk_method="greedy",
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 0.707,
            "mscale_all_dim": 0.5,
        },
    ),
    "deepseek-v2-groups": DeepseekV2Config(
        **{**LATENT, "num_experts_per_tok": 4},
        q_lora_rank=28,
        topk_method="group_limited_greedy",
        n_group=4,
        topk_group=2,
    ),
    "deepseek-v3": DeepseekV3Config(**LATENT, q_lora_rank=28, n_group=4, topk_group=2, rms_norm_eps=1e-5),
}


def save_model(config: PretrainedConfig, folder: Path) -> Path:
    """Save a model whose every parameter and persistent buffer is random, norms and biases too."""
    generator = torch.Generator().manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    persistent = [(name, buffer) for name, buffer in model.named_buffers() if name in model.state_dict()]
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *persistent]:
            scale = 0.2 if tensor.dim() == 1 else 1.5 / tensor.shape[-1] ** 0.5
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * scale + ("norm" in name))
    model.save_pretrained(folder)
    return folder
