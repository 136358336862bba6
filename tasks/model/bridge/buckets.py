"""Weights cut into buckets, for broadcasts that a receiver has to be told of beforehand."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from configs.training import ParallelLayout
from infra.quantisation.recipe import QuantisationRecipe
from tasks.model.architecture import Architecture
from tasks.model.bridge.families import mappings
from tasks.model.bridge.mapping import Mapping
from tasks.model.megatron.model import held_tensors


class TensorSpec(NamedTuple):
    """A tensor as a receiver has to allocate it."""

    name: str
    """Hugging Face's name."""
    dtype: str
    """Such as `float32`."""
    shape: tuple[int, ...]


class Bucket(NamedTuple):
    """Tensors that travel together, in this order, and the mappings that they come from.

    A quantised weight and its scales are of one mapping.
    """

    tensors: tuple[TensorSpec, ...]
    mappings: tuple[Mapping, ...]


def plan_buckets(
    model: nn.Module,
    architecture: Architecture,
    layout: ParallelLayout,
    recipe: QuantisationRecipe,
    max_bytes: float,
) -> list[Bucket]:
    """All weights in the order of the layers, at most `max_bytes` a bucket.

    The tensors of one Megatron tensor stay together, also where they are larger than a bucket.
    """
    held = held_tensors(model)
    buckets: list[Bucket] = []
    room = 0.0
    for mapping in mappings(architecture, layout.expert_parallel):
        specs = _specs(mapping, held[mapping.megatron], architecture, layout.tensor_parallel, recipe)
        size = _bytes(specs)
        if not buckets or size > room:
            buckets.append(Bucket((), ()))
            room = max_bytes
        room -= size
        buckets[-1] = Bucket(buckets[-1].tensors + specs, (*buckets[-1].mappings, mapping))
    return buckets


def _specs(
    mapping: Mapping,
    tensor: torch.Tensor,
    architecture: Architecture,
    ranks: int,
    recipe: QuantisationRecipe,
) -> tuple[TensorSpec, ...]:
    specs: list[TensorSpec] = []
    for name, part in zip(mapping.hf, mapping.split(tensor), strict=True):
        shape = list(part.shape)
        if mapping.shard_dim is not None:
            shape[mapping.shard_dim] *= ranks
        if mapping.by_token:
            shape[0] = architecture.vocab_size
        forms = recipe.forms(name, tensor.dtype, tuple(shape))
        specs += [
            TensorSpec(part, str(form.dtype).removeprefix("torch."), form.shape)
            for part, form in forms.items()
        ]
    return tuple(specs)


def _bytes(specs: Sequence[TensorSpec]) -> int:
    return sum(torch.Size(spec.shape).numel() * getattr(torch, spec.dtype).itemsize for spec in specs)
