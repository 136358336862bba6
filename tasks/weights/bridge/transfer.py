"""Moving weights between a Hugging Face checkpoint and the ranks' Megatron parameters, tensor by tensor."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor, nn

from tasks.training.architecture import Architecture
from tasks.training.errors import WeightsMismatch
from tasks.weights.bridge.checkpoint import HfCheckpoint
from tasks.weights.bridge.mapping import Mapping, mappings


def load_weights(model: nn.Module, architecture: Architecture, folder: Path) -> None:
    """Set this rank's parameters from a checkpoint folder; rows that pad the vocabulary become zero.

    Raises WeightsMismatch, naming the tensors, when some are missing, unknown or of another shape.
    """
    group = parallel_state.get_tensor_model_parallel_group()
    parameters = dict(model.named_parameters())
    wanted = mappings(architecture, group.size())
    with HfCheckpoint(folder) as checkpoint, torch.no_grad():
        _check_names(checkpoint, wanted, folder)
        for mapping in wanted:
            parameter = parameters[mapping.megatron]
            try:
                value = _padded(checkpoint, mapping, architecture, parameter)
                if value.shape != parameter.shape:
                    raise ValueError(f"{tuple(value.shape)} where {tuple(parameter.shape)} is expected")
            except (RuntimeError, ValueError) as error:
                shapes = ", ".join(f"{name} {checkpoint.shape(name)}" for name in mapping.hf)
                raise WeightsMismatch(f"{folder}: {shapes} do not fit config.json: {error}") from None
            parameter.copy_(value)


def export_weights(
    model: nn.Module, architecture: Architecture, dtype: torch.dtype, only: Iterable[Mapping] | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Yield (Hugging Face name, whole tensor on the model's device) for all mappings, or `only` some.

    A collective of the tensor-parallel ranks: all of them must iterate to the end; only the first yields.
    """
    group = parallel_state.get_tensor_model_parallel_group()
    parameters = dict(model.named_parameters())
    for mapping in mappings(architecture, group.size()) if only is None else only:
        parts = mapping.split(parameters[mapping.megatron].detach())
        for name, part in zip(mapping.hf, parts, strict=True):
            whole = (
                part if mapping.shard_dim is None else _gathered(part.contiguous(), mapping.shard_dim, group)
            )
            if group.rank() == 0:
                rows = architecture.vocab_size if mapping.by_token else whole.shape[0]
                yield name, whole[:rows].to(dtype).contiguous()


def _check_names(checkpoint: HfCheckpoint, wanted: list[Mapping], folder: Path) -> None:
    names = {name for mapping in wanted for name in mapping.hf}
    for kind, wrong in (("lacks", names - checkpoint.names), ("has unknown", checkpoint.names - names)):
        if wrong:
            raise WeightsMismatch(
                f"{folder}: the checkpoint {kind} {', '.join(sorted(wrong))}: see its config.json"
            )


def _padded(
    checkpoint: HfCheckpoint, mapping: Mapping, architecture: Architecture, parameter: Tensor
) -> Tensor:
    group = parallel_state.get_tensor_model_parallel_group()
    value = mapping.join(
        [checkpoint.part(name, mapping.shard_dim, group.rank(), group.size()) for name in mapping.hf]
    )
    if not mapping.by_token:
        return value
    rows = checkpoint.shape(mapping.hf[0])[0]
    if rows != architecture.vocab_size:
        raise ValueError(f"{rows} rows where vocab_size is {architecture.vocab_size}")
    return torch.cat([value, value.new_zeros(len(parameter) - len(value), *value.shape[1:])])


def _gathered(part: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """The parts of all ranks in one tensor on the group's first rank; anything elsewhere."""
    if group.size() == 1:
        return part
    first = group.rank() == 0
    parts = [torch.empty_like(part) for _ in range(group.size())] if first else None
    dist.gather(part, parts, dst=dist.get_global_rank(group, 0), group=group)
    return torch.cat(parts, dim=dim) if parts is not None else part
