"""Tensors in the body of /update_weights_from_tensor: SGLang's `flattened_bucket`, pickled, in base64.

A bucket is the bytes of all its tensors in one uint8 tensor, and where each of them lies. The bytes go into
the pickle itself: torch's own multiprocessing pickler would send file descriptors, which another process
cannot open.
"""

import io
import pickle
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pybase64
import torch

NamedTensor = tuple[str, torch.Tensor]
_ALIGNMENT = 16
"""Bytes; a multiple of every dtype's size."""
_HARMLESS = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("types", "SimpleNamespace"),
}
_BROKEN = (ValueError, TypeError, LookupError, AttributeError, EOFError, RuntimeError, pickle.UnpicklingError)


class PackedBucket(NamedTuple):
    """Tensors as a request carries them; any number of engines can be sent the same."""

    shapes: dict[str, tuple[int, ...]]
    content: bytes
    """The bucket, pickled, in base64."""


def pack(tensors: Sequence[NamedTensor]) -> PackedBucket:
    """One bucket of at least one tensor."""
    metadata = []
    end = 0
    for name, tensor in tensors:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = start + tensor.nbytes
        metadata.append(
            SimpleNamespace(
                name=name,
                shape=tuple(tensor.shape),
                dtype=tensor.dtype,
                start_idx=start,
                end_idx=end,
                numel=tensor.nbytes,
            )
        )
    flat = torch.zeros(end, dtype=torch.uint8)
    for (_, tensor), entry in zip(tensors, metadata, strict=True):
        flat[entry.start_idx : entry.end_idx].view(entry.dtype).view(entry.shape).copy_(tensor.detach())
    bucket = pickle.dumps({"flattened_tensor": flat, "metadata": metadata})
    return PackedBucket({entry.name: entry.shape for entry in metadata}, pybase64.b64encode(bucket))


def unpack(content: bytes | str) -> dict[str, torch.Tensor]:
    """The tensors that `pack` put in, running no code that came with them; ValueError for anything else."""
    try:
        bucket = _BucketUnpickler(io.BytesIO(pybase64.b64decode(content, validate=True))).load()
        flat = bucket["flattened_tensor"]
        return {
            entry.name: flat[entry.start_idx : entry.end_idx].view(entry.dtype).view(entry.shape)
            for entry in bucket["metadata"]
        }
    except _BROKEN as error:
        raise ValueError(f"not a flattened bucket in base64: {error}") from error


def buckets(tensors: Iterable[NamedTensor], most_bytes: float) -> Iterator[list[NamedTensor]]:
    """Consecutive tensors of at most `most_bytes` together; a larger one is a bucket by itself."""
    bucket: list[NamedTensor] = []
    held = 0
    for name, tensor in tensors:
        if bucket and held + tensor.nbytes > most_bytes:
            yield bucket
            bucket, held = [], 0
        bucket.append((name, tensor))
        held += tensor.nbytes
    if bucket:
        yield bucket


class _BucketUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """What a bucket's pickle may name."""
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return _load_storage
        if (module, name) in _HARMLESS:
            return super().find_class(module, name)
        if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def _load_storage(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)
