"""What changed between two weight versions, to be applied where a copy of the earlier one lies.

A changed tensor is the XOR of its old and new bytes, first the first byte of every element, then the second
ones and so on, compressed with zstd: a small update leaves sign, exponent and the high bits of most elements
as they were, which gives long runs of zeros. A tensor that did not change is left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow
import torch
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from configs.errors import RunFailure
from infra.engines.tensors import buckets
from infra.store.base import KeyMissingError
from infra.weights_folder import WeightsFolder, WeightsMismatch
from tasks.model.bridge.writer import WeightsWriter
from tasks.record.keys import numbered_key
from tasks.record.manifest import TensorEntry
from tasks.record.run import Run
from tasks.record.stored import RecordUnreadable, read_record
from tasks.record.versions import read_manifest
from tasks.record.weight_version import WeightVersion

_ZSTD = pyarrow.Codec("zstd", compression_level=1)
_BROKEN = (
    KeyMissingError,
    LookupError,
    OSError,
    RecordUnreadable,
    SafetensorError,
    ValueError,
    WeightsMismatch,
)


class DeltaUnusable(RunFailure):
    """A delta does not lead from what is here to the version: take the whole of it."""


class DeltaIndex(BaseModel):
    """What `<run>/deltas/<version>/index.json` holds, written when the files beside it are whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    files: int
    bytes: int
    """Size of the files together."""


def write_delta(run: Run, weights: WeightVersion) -> None:
    """Store the delta from a version's parent, if it has one, in files of about publish.bucket_mb.

    One that is there stays. DeltaUnusable when the weights of one of the two cannot be read.
    """
    index = _index_key(run, weights.number)
    if weights.parent is None or run.store.exists(index):
        return
    sizes = []
    with _read_failures(weights):
        old, new = (run.store.local(run.weights_key(version)) for version in (weights.parent, weights.number))
        for number, changed in enumerate(buckets(_changes(old, new), run.config.publish.bucket_bytes)):
            file = save(dict(changed))
            run.store.replace(_file_key(run, weights.number, number), file)
            sizes.append(len(file))
    delta = DeltaIndex(files=len(sizes), bytes=sum(sizes))
    run.store.replace(index, delta.model_dump_json(indent=1).encode())


def apply_delta(run: Run, weights: WeightVersion, parent: Path, target: Path) -> int:
    """Fill `target` with the tensors of a version, made from its parent's folder, each verified.

    The bytes of the delta. DeltaUnusable when there is none, something is missing, or a tensor is not what
    the manifest says; OSError or SafetensorError when `target` cannot be written.
    """
    with _read_failures(weights):
        index = read_record(run.store, _index_key(run, weights.number), DeltaIndex)
    writer = WeightsWriter(target, run.config.publish.bucket_bytes)
    for name, tensor in _patched(run, weights, index, parent):
        writer.add(name, tensor)
    writer.finish()
    return index.bytes


def prune_deltas(run: Run, current: int) -> None:
    """Remove the deltas of versions before the current one."""
    for version in run.numbers("deltas"):
        if version < current:
            run.store.remove(_folder_key(run, version))


def _changes(old: Path, new: Path) -> Iterator[tuple[str, Tensor]]:
    with WeightsFolder(old) as before, WeightsFolder(new) as after:
        for name in sorted(after.names):
            difference = _bytes(before.whole(name)) ^ _bytes(tensor := after.whole(name))
            if difference.any():
                planes = np.ascontiguousarray(difference.reshape(-1, tensor.itemsize).T)
                yield name, torch.frombuffer(bytearray(_ZSTD.compress(planes)), dtype=torch.uint8)


def _patched(
    run: Run, weights: WeightVersion, index: DeltaIndex, parent: Path
) -> Iterator[tuple[str, Tensor]]:
    """The version's tensors: first those that changed, then the others."""
    unchanged = dict(read_manifest(run, weights).tensors)
    with _read_failures(weights), WeightsFolder(parent) as old:
        for number in range(index.files):
            for name, packed in load(run.store.read(_file_key(run, weights.number, number))).items():
                entry = unchanged.pop(name)
                yield name, _verified(name, _unpacked(old.whole(name), packed), entry)
        for name, entry in unchanged.items():
            yield name, _verified(name, old.whole(name), entry)


@contextmanager
def _read_failures(weights: WeightVersion) -> Iterator[None]:
    """Raise DeltaUnusable for what cannot be read; an outage of the store stays one."""
    try:
        yield
    except _BROKEN as error:
        raise DeltaUnusable(f"the delta of version {weights.number} is of no use: {error}") from error


def _unpacked(old: Tensor, packed: Tensor) -> Tensor:
    """The new tensor; ValueError or OSError when the difference is not one of such a tensor."""
    planes = np.frombuffer(_ZSTD.decompress(packed.numpy(), old.nbytes), dtype=np.uint8)
    new = planes.reshape(old.itemsize, -1).T.reshape(-1) ^ _bytes(old)
    return torch.from_numpy(new).view(old.dtype).view(old.shape)


def _bytes(tensor: Tensor) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def _verified(name: str, tensor: Tensor, entry: TensorEntry) -> Tensor:
    if TensorEntry.of(tensor) != entry:
        raise ValueError(f"{name} is not what the manifest says")
    return tensor


def _folder_key(run: Run, version: int) -> str:
    return numbered_key(run.id, "deltas", version)


def _index_key(run: Run, version: int) -> str:
    return f"{_folder_key(run, version)}/index.json"


def _file_key(run: Run, version: int, number: int) -> str:
    return f"{_folder_key(run, version)}/{number:05d}.safetensors"
