"""Which mappings each supported model is made of, layer by layer."""

from collections.abc import Iterator
from typing import NamedTuple

from tasks.model.architecture import Architecture, Experts, GroupedAttention, LatentAttention
from tasks.model.bridge.mapping import Mapping, grouped_qkv, plain, stacked


class ExpertNames(NamedTuple):
    """Hugging Face's names of a layer's experts."""

    folder: str
    gate: str
    up: str
    down: str


_EXPERT_NAMES = {"mixtral": ExpertNames("block_sparse_moe", "w1", "w3", "w2")}
_USUAL_EXPERT_NAMES = ExpertNames("mlp", "gate_proj", "up_proj", "down_proj")


def mappings(architecture: Architecture, expert_parallel: int) -> list[Mapping]:
    """All tensors of the model, in the order of its layers, whichever ranks hold them."""
    layers = [
        mapping
        for layer in range(architecture.layers)
        for mapping in _layer(architecture, layer, expert_parallel)
    ]
    head = [] if architecture.tied else [plain("output_layer.weight", "lm_head.weight", 0, by_token=True)]
    return [
        plain("embedding.word_embeddings.weight", "model.embed_tokens.weight", 0, by_token=True),
        *layers,
        plain("decoder.final_layernorm.weight", "model.norm.weight"),
        *head,
    ]


def _layer(architecture: Architecture, layer: int, expert_parallel: int) -> Iterator[Mapping]:
    megatron, hf = f"decoder.layers.{layer}.", f"model.layers.{layer}."
    attention = f"{megatron}self_attention.", f"{hf}self_attn."
    yield plain(f"{megatron}input_layernorm.weight", f"{hf}input_layernorm.weight")
    match architecture.attention:
        case GroupedAttention():
            yield from _grouped_attention(architecture.attention, architecture.heads, *attention)
        case LatentAttention():
            yield from _latent_attention(architecture.attention, *attention)
    yield plain(f"{megatron}pre_mlp_layernorm.weight", f"{hf}post_attention_layernorm.weight")
    if architecture.experts is not None and architecture.has_experts(layer):
        names = _EXPERT_NAMES.get(architecture.model_type, _USUAL_EXPERT_NAMES)
        yield from _experts(architecture.experts, names, expert_parallel, f"{megatron}mlp.", hf)
    else:
        yield from _mlp(f"{megatron}mlp.", f"{hf}mlp.")


def _grouped_attention(part: GroupedAttention, heads: int, megatron: str, hf: str) -> Iterator[Mapping]:
    for kind in ("weight", "bias") if part.qkv_bias else ("weight",):
        names = [f"{hf}{name}_proj.{kind}" for name in "qkv"]
        yield grouped_qkv(f"{megatron}linear_qkv.{kind}", names, heads // part.kv_heads, part.head_dim)
    yield plain(f"{megatron}linear_proj.weight", f"{hf}o_proj.weight", 1)
    if part.output_bias:
        yield plain(f"{megatron}linear_proj.bias", f"{hf}o_proj.bias")
    if part.qk_norm:
        yield plain(f"{megatron}q_layernorm.weight", f"{hf}q_norm.weight")
        yield plain(f"{megatron}k_layernorm.weight", f"{hf}k_norm.weight")


def _latent_attention(part: LatentAttention, megatron: str, hf: str) -> Iterator[Mapping]:
    if part.query_rank is None:
        yield plain(f"{megatron}linear_q_proj.weight", f"{hf}q_proj.weight", 0)
    else:
        yield plain(f"{megatron}linear_q_down_proj.weight", f"{hf}q_a_proj.weight")
        yield plain(f"{megatron}q_layernorm.weight", f"{hf}q_a_layernorm.weight")
        yield plain(f"{megatron}linear_q_up_proj.weight", f"{hf}q_b_proj.weight", 0)
    yield plain(f"{megatron}linear_kv_down_proj.weight", f"{hf}kv_a_proj_with_mqa.weight")
    yield plain(f"{megatron}kv_layernorm.weight", f"{hf}kv_a_layernorm.weight")
    yield plain(f"{megatron}linear_kv_up_proj.weight", f"{hf}kv_b_proj.weight", 0)
    yield plain(f"{megatron}linear_proj.weight", f"{hf}o_proj.weight", 1)


def _mlp(megatron: str, hf: str) -> Iterator[Mapping]:
    yield stacked(f"{megatron}linear_fc1.weight", [f"{hf}gate_proj.weight", f"{hf}up_proj.weight"], 0)
    yield plain(f"{megatron}linear_fc2.weight", f"{hf}down_proj.weight", 1)


def _experts(
    part: Experts, names: ExpertNames, expert_parallel: int, megatron: str, layer: str
) -> Iterator[Mapping]:
    """Router, the MLP for all tokens, and the experts, each of which one expert-parallel rank holds whole."""
    hf = f"{layer}{names.folder}."
    yield plain(f"{megatron}router.weight", f"{hf}gate.weight")
    if part.score_bias:
        bias = f"{hf}gate.e_score_correction_bias"
        yield plain(f"{megatron}router.expert_bias", bias)
    if part.shared_ffn_size is not None:
        yield from _mlp(f"{megatron}shared_experts.", f"{hf}shared_experts.")
    per_rank = part.count // expert_parallel
    for expert in range(part.count):
        rank, local = divmod(expert, per_rank)
        inner, outer = f"{megatron}experts.local_experts.{local}.", f"{hf}experts.{expert}."
        gate_up = [f"{outer}{names.gate}.weight", f"{outer}{names.up}.weight"]
        yield stacked(f"{inner}linear_fc1.weight", gate_up, None, expert_rank=rank)
        yield plain(f"{inner}linear_fc2.weight", f"{outer}{names.down}.weight", expert_rank=rank)
