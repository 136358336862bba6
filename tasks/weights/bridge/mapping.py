"""Which Hugging Face tensors make which Megatron parameter, and how tensor parallelism splits them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tasks.training.architecture import Architecture

Join = Callable[[Sequence[Tensor]], Tensor]
Split = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Mapping:
    """One Megatron parameter. Every rank joins its own parts of the Hugging Face tensors."""

    megatron: str
    hf: tuple[str, ...]
    shard_dim: int | None
    """Dimension of the Hugging Face tensors that is cut into a part for each rank; None leaves them whole."""
    join: Join
    """This rank's parts of the Hugging Face tensors to its Megatron parameter."""
    split: Split
    """Inverse of join."""
    by_token: bool = False
    """Rows are tokens; Megatron pads them to a multiple of the ranks."""


def mappings(architecture: Architecture, tensor_parallel: int) -> list[Mapping]:
    """All parameters of the model, in the order of its layers."""
    layers = [
        mapping
        for layer in range(architecture.layers)
        for mapping in _layer(
            architecture, tensor_parallel, f"decoder.layers.{layer}.", f"model.layers.{layer}."
        )
    ]
    head = [] if architecture.tied else [_by_token("output_layer.weight", "lm_head.weight")]
    return [
        _by_token("embedding.word_embeddings.weight", "model.embed_tokens.weight"),
        *layers,
        _plain("decoder.final_layernorm.weight", "model.norm.weight", None),
        *head,
    ]


def _layer(architecture: Architecture, tensor_parallel: int, megatron: str, hf: str) -> list[Mapping]:
    attention, mlp = f"{hf}self_attn.", f"{hf}mlp."
    found = [
        _plain(f"{megatron}input_layernorm.weight", f"{hf}input_layernorm.weight", None),
        _qkv(architecture, tensor_parallel, f"{megatron}self_attention.linear_qkv.", attention, "weight"),
        _plain(f"{megatron}self_attention.linear_proj.weight", f"{attention}o_proj.weight", 1),
        _plain(f"{megatron}pre_mlp_layernorm.weight", f"{hf}post_attention_layernorm.weight", None),
        _gate_up(f"{megatron}mlp.linear_fc1.weight", mlp),
        _plain(f"{megatron}mlp.linear_fc2.weight", f"{mlp}down_proj.weight", 1),
    ]
    if architecture.qkv_bias:
        found.append(
            _qkv(architecture, tensor_parallel, f"{megatron}self_attention.linear_qkv.", attention, "bias")
        )
    if architecture.output_bias:
        found.append(_plain(f"{megatron}self_attention.linear_proj.bias", f"{attention}o_proj.bias", None))
    if architecture.qk_norm:
        found += [
            _plain(f"{megatron}self_attention.q_layernorm.weight", f"{attention}q_norm.weight", None),
            _plain(f"{megatron}self_attention.k_layernorm.weight", f"{attention}k_norm.weight", None),
        ]
    return found


def _plain(megatron: str, hf: str, shard_dim: int | None) -> Mapping:
    return Mapping(megatron, (hf,), shard_dim, lambda parts: parts[0], lambda parameter: [parameter])


def _by_token(megatron: str, hf: str) -> Mapping:
    return replace(_plain(megatron, hf, 0), by_token=True)


def _gate_up(megatron: str, mlp: str) -> Mapping:
    """[gate; up], stacked by rows."""
    names = (f"{mlp}gate_proj.weight", f"{mlp}up_proj.weight")
    return Mapping(
        megatron, names, 0, lambda parts: torch.cat([*parts]), lambda parameter: parameter.chunk(2)
    )


def _qkv(
    architecture: Architecture, tensor_parallel: int, megatron: str, attention: str, kind: str
) -> Mapping:
    """For each key-value group its queries, then its key, then its value: [q .. q k v] a group, by rows."""
    groups = architecture.kv_heads // tensor_parallel
    queries = architecture.heads // architecture.kv_heads
    size = architecture.head_dim

    def join(parts: Sequence[Tensor]) -> Tensor:
        grouped = [part.unflatten(0, (groups, -1, size)) for part in parts]
        return torch.cat(grouped, dim=1).flatten(0, 2)

    def split(parameter: Tensor) -> list[Tensor]:
        grouped = parameter.unflatten(0, (groups, queries + 2, size))
        return [part.flatten(0, 2) for part in grouped.split([queries, 1, 1], dim=1)]

    names = tuple(f"{attention}{name}_proj.{kind}" for name in "qkv")
    return Mapping(f"{megatron}{kind}", names, 0, join, split)
