"""The supported model families: how each one's Hugging Face config tells its attention and its experts."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tasks.model.architecture.parts import ExpertGroups, Experts, GroupedAttention, LatentAttention, Yarn
from tasks.model.errors import ModelUnsupported

_MEGATRON_LLAMA3_ROPE = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


class Family(NamedTuple):
    """How to read a family's config. Both functions raise ModelUnsupported."""

    attention: Callable[[Any], GroupedAttention | LatentAttention]
    experts: Callable[[Any], Experts | None]


def check_features(config: Any) -> None:
    """Raise ModelUnsupported for what no family is built with."""
    sliding = [kind for kind in getattr(config, "layer_types", None) or [] if kind != "full_attention"]
    for unsupported, feature in (
        (config.hidden_act != "silu", f'hidden_act "{config.hidden_act}"'),
        (getattr(config, "mlp_bias", False), "mlp_bias"),
        (getattr(config, "sliding_window", None) or sliding, "sliding-window attention"),
        (getattr(config, "num_experts_per_tok", None) == 1, "num_experts_per_tok 1"),
    ):
        _refuse(config, unsupported, feature)


def _grouped(config: Any, *, qkv_bias: bool = False, qk_norm: bool = False) -> GroupedAttention:
    biased = bool(getattr(config, "attention_bias", False))
    return GroupedAttention(
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        qkv_bias=qkv_bias or biased,
        output_bias=biased,
        qk_norm=qk_norm,
        rope_llama3_factor=_llama3_factor(config.rope_parameters),
    )


def _latent(config: Any) -> LatentAttention:
    _refuse(config, config.attention_bias, "attention_bias")
    _refuse(config, not getattr(config, "rope_interleave", True), "rope_interleave false")
    return LatentAttention(
        query_rank=config.q_lora_rank,
        kv_rank=config.kv_lora_rank,
        head_dim=config.qk_nope_head_dim,
        rope_dim=config.qk_rope_head_dim,
        value_dim=config.v_head_dim,
        yarn=_yarn(config.rope_parameters),
    )


def _no_experts(_: Any) -> None:
    return None


def _mixtral_experts(config: Any) -> Experts:
    return Experts(
        layers=tuple(range(config.num_hidden_layers)),
        count=config.num_local_experts,
        per_token=config.num_experts_per_tok,
        ffn_size=config.intermediate_size,
    )


def _qwen3_experts(config: Any) -> Experts:
    return Experts(
        layers=tuple(
            layer
            for layer in range(config.num_hidden_layers)
            if layer not in config.mlp_only_layers and (layer + 1) % config.decoder_sparse_step == 0
        ),
        count=config.num_experts,
        per_token=config.num_experts_per_tok,
        ffn_size=config.moe_intermediate_size,
        renormalised=config.norm_topk_prob,
    )


def _deepseek_v2_experts(config: Any) -> Experts:
    _refuse(config, config.norm_topk_prob, "norm_topk_prob")
    limited = config.topk_method == "group_limited_greedy"
    _refuse(config, not limited and config.topk_method != "greedy", f'topk_method "{config.topk_method}"')
    groups = _groups(config, scored=1) if limited else None
    return _deepseek_experts(config, renormalised=False, groups=groups)


def _deepseek_v3_experts(config: Any) -> Experts:
    _refuse(config, not config.norm_topk_prob, "norm_topk_prob false")
    groups = _groups(config, scored=2) if config.n_group > 1 else None
    return _deepseek_experts(config, score="sigmoid", score_bias=True, groups=groups)


def _deepseek_experts(config: Any, **fields: Any) -> Experts:
    return Experts(
        layers=tuple(range(config.first_k_dense_replace, config.num_hidden_layers)),
        count=config.n_routed_experts,
        per_token=config.num_experts_per_tok,
        ffn_size=config.moe_intermediate_size,
        shared_ffn_size=config.moe_intermediate_size * config.n_shared_experts,
        scaling=config.routed_scaling_factor,
        **fields,
    )


def _groups(config: Any, scored: int) -> ExpertGroups:
    return ExpertGroups(count=config.n_group, per_token=config.topk_group, scored=scored)


FAMILIES = {
    "llama": Family(_grouped, _no_experts),
    "qwen2": Family(partial(_grouped, qkv_bias=True), _no_experts),
    "qwen3": Family(partial(_grouped, qk_norm=True), _no_experts),
    "qwen3_moe": Family(partial(_grouped, qk_norm=True), _qwen3_experts),
    "mixtral": Family(_grouped, _mixtral_experts),
    "deepseek_v2": Family(_latent, _deepseek_v2_experts),
    "deepseek_v3": Family(_latent, _deepseek_v3_experts),
}
"""By `model_type` of config.json. These, and no others, are trained and published."""


def _refuse(config: Any, unsupported: Any, feature: str) -> None:
    if unsupported:
        raise ModelUnsupported(f"the trainer's {config.model_type} has no {feature}: use another model")


def _llama3_factor(rope: dict[str, Any]) -> float | None:
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return None
    if kind == "llama3" and all(rope[name] == value for name, value in _MEGATRON_LLAMA3_ROPE.items()):
        return float(rope["factor"])
    raise ModelUnsupported(
        f'rope_scaling "{kind}" with {rope} is not supported: the trainer has "default", and "llama3" with '
        f"{_MEGATRON_LLAMA3_ROPE}"
    )


def _yarn(rope: dict[str, Any]) -> Yarn | None:
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return None
    if kind == "yarn" and rope.get("mscale") and rope.get("mscale_all_dim"):
        return Yarn(
            factor=rope["factor"],
            original_max_positions=rope["original_max_position_embeddings"],
            beta_fast=rope.get("beta_fast") or 32,
            beta_slow=rope.get("beta_slow") or 1,
            mscale=rope["mscale"],
            mscale_all_dim=rope["mscale_all_dim"],
        )
    raise ModelUnsupported(
        f'rope_scaling "{kind}" with {rope} is not supported: latent attention has "default", and "yarn" '
        "with mscale and mscale_all_dim"
    )
