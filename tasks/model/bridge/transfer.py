"""Moving weights between a folder in Hugging Face's layout and the ranks' Megatron tensors, one by one."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor, nn

from infra.weights_folder import WeightsFolder, WeightsMismatch
from tasks.model.architecture import Architecture
from tasks.model.bridge.families import mappings
from tasks.model.bridge.mapping import Mapping
from tasks.model.megatron.model import held_tensors

_NAMED = 8
"""Most tensors that an error names."""


def load_weights(model: nn.Module, architecture: Architecture, folder: Path) -> None:
    """Set this rank's tensors from a weights folder; rows that pad the vocabulary become zero.

    Raises WeightsMismatch, naming the tensors, when some are missing, unknown or of another shape.
    """
    rank = parallel_state.get_expert_model_parallel_rank()
    wanted = mappings(architecture, parallel_state.get_expert_model_parallel_world_size())
    mine = [mapping for mapping in wanted if mapping.expert_rank in (None, rank)]
    held = held_tensors(model)
    _check_mapped(held.keys(), mine)
    with WeightsFolder(folder) as weights, torch.no_grad():
        _check_names(weights, wanted, architecture, folder)
        for mapping in mine:
            tensor = held[mapping.megatron]
            try:
                value = _padded(weights, mapping, architecture, tensor)
                if value.shape != tensor.shape:
                    raise ValueError(f"{tuple(value.shape)} where {tuple(tensor.shape)} is expected")
            except (RuntimeError, ValueError) as error:
                shapes = ", ".join(f"{name} {weights.shapes[name]}" for name in mapping.hf)
                raise WeightsMismatch(f"{folder}: {shapes} do not fit config.json: {error}") from None
            tensor.copy_(value)


def export_weights(
    model: nn.Module, architecture: Architecture, only: Iterable[Mapping] | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Yield (Hugging Face name, whole tensor in Megatron's dtype and place) for all mappings, or `only` some.

    A collective of all ranks, which must iterate to the end; only rank 0 yields. Parts come to it from the
    other ranks of its tensor-parallel group, and experts from those of its expert-parallel group.
    """
    held = held_tensors(model)
    experts = parallel_state.get_expert_model_parallel_world_size()
    for mapping in mappings(architecture, experts) if only is None else only:
        parts = mapping.split(held[mapping.megatron].detach())
        for name, part in zip(mapping.hf, parts, strict=True):
            whole = _on_first_rank(part, mapping)
            if whole is not None:
                rows = architecture.vocab_size if mapping.by_token else whole.shape[0]
                yield name, whole[:rows].contiguous()


def _check_mapped(held: Iterable[str], mine: list[Mapping]) -> None:
    if left_out := set(held).symmetric_difference(mapping.megatron for mapping in mine):
        raise WeightsMismatch(f"model and mappings differ in {_listed(left_out)}: correct bridge/families.py")


def _check_names(
    weights: WeightsFolder, wanted: list[Mapping], architecture: Architecture, folder: Path
) -> None:
    names = {name for mapping in wanted for name in mapping.hf}
    last = architecture.layers + architecture.prediction_layers
    unused = tuple(f"model.layers.{layer}." for layer in range(architecture.layers, last))
    known = {name for name in weights.names if not name.startswith(unused)}
    for kind, wrong in (("lacks", names - known), ("has unknown", known - names)):
        if wrong:
            raise WeightsMismatch(f"{folder}: the folder {kind} {_listed(wrong)}: see its config.json")


def _listed(names: set[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


def _padded(weights: WeightsFolder, mapping: Mapping, architecture: Architecture, tensor: Tensor) -> Tensor:
    group = parallel_state.get_tensor_model_parallel_group()
    value = mapping.join(
        [weights.part(name, mapping.shard_dim, group.rank(), group.size()) for name in mapping.hf]
    )
    if not mapping.by_token:
        return value
    rows = weights.shapes[mapping.hf[0]][0]
    if rows != architecture.vocab_size:
        raise ValueError(f"{rows} rows where vocab_size is {architecture.vocab_size}")
    return torch.cat([value, value.new_zeros(len(tensor) - len(value), *value.shape[1:])])


def _on_first_rank(part: Tensor, mapping: Mapping) -> Tensor | None:
    """The whole tensor on rank 0, from its parts or its one holder; None on other ranks."""
    if mapping.expert_rank is not None:
        return _sent(part, mapping.expert_rank)
    group = parallel_state.get_tensor_model_parallel_group()
    if dist.get_global_rank(group, 0) != 0:
        return None
    if mapping.shard_dim is None or group.size() == 1:
        return part if group.rank() == 0 else None
    part = part.contiguous()
    parts = [torch.empty_like(part) for _ in range(group.size())] if group.rank() == 0 else None
    dist.gather(part, parts, dst=0, group=group)
    return None if parts is None else torch.cat(parts, dim=mapping.shard_dim)


def _sent(part: Tensor, expert_rank: int) -> Tensor | None:
    """An expert's tensor on rank 0, from the rank of its expert-parallel group that holds it."""
    group = parallel_state.get_expert_model_parallel_group()
    source = dist.get_global_rank(group, expert_rank)
    if dist.get_rank() not in (0, source) or dist.get_global_rank(group, 0) != 0:
        return None
    if dist.get_rank() == source == 0:
        return part
    if dist.get_rank() == source:
        dist.send(part.contiguous(), dst=0)
        return None
    received = torch.empty_like(part, memory_format=torch.contiguous_format)
    dist.recv(received, src=source)
    return received
