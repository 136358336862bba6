"""The kinds of mapping between Hugging Face tensors and Megatron tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Join = Callable[[Sequence[Tensor]], Tensor]
Split = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Mapping:
    """One Megatron tensor. Every rank that holds it joins its own parts of the Hugging Face tensors."""

    megatron: str
    hf: tuple[str, ...]
    shard_dim: int | None
    """Dimension of the Hugging Face tensors that is cut into a part for each tensor-parallel rank.

    None leaves them whole.
    """
    join: Join
    """This rank's parts of the Hugging Face tensors to its Megatron tensor."""
    split: Split
    """Inverse of join."""
    by_token: bool = False
    """Rows are tokens; Megatron pads them to a multiple of the ranks."""
    expert_rank: int | None = None
    """The one expert-parallel rank that holds the tensor; None where all do.

    Other ranks hold another expert's tensor under the same Megatron name.
    """


def plain(
    megatron: str,
    hf: str,
    shard_dim: int | None = None,
    *,
    by_token: bool = False,
    expert_rank: int | None = None,
) -> Mapping:
    """The same tensor on both sides."""
    return Mapping(
        megatron,
        (hf,),
        shard_dim,
        lambda parts: parts[0],
        lambda tensor: [tensor],
        by_token=by_token,
        expert_rank=expert_rank,
    )


def stacked(
    megatron: str, hf: Sequence[str], shard_dim: int | None, expert_rank: int | None = None
) -> Mapping:
    """Tensors of one shape, such as [gate; up], stacked by rows."""
    return Mapping(
        megatron,
        tuple(hf),
        shard_dim,
        lambda parts: torch.cat([*parts]),
        lambda tensor: tensor.chunk(len(hf)),
        expert_rank=expert_rank,
    )


def grouped_qkv(megatron: str, hf: Sequence[str], queries: int, head_dim: int) -> Mapping:
    """For each key-value group its `queries` query heads, then its key, then its value, by rows."""

    def join(parts: Sequence[Tensor]) -> Tensor:
        groups = parts[1].shape[0] // head_dim
        grouped = [part.unflatten(0, (groups, -1, head_dim)) for part in parts]
        return torch.cat(grouped, dim=1).flatten(0, 2)

    def split(tensor: Tensor) -> list[Tensor]:
        grouped = tensor.unflatten(0, (-1, queries + 2, head_dim))
        return [part.flatten(0, 2) for part in grouped.split([queries, 1, 1], dim=1)]

    return Mapping(megatron, tuple(hf), 0, join, split)
