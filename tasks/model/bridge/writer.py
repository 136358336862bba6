"""Writing a folder in Hugging Face's layout: the weights tensor by tensor, and what belongs beside them."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from infra.folders import apply_umask
from tasks.model.files import companions
from tasks.record.manifest import Manifest, TensorEntry

FILE_BYTES = 5 * 10**9
"""Most bytes of a file, as published models have it."""


def copy_companions(source: Path, target: Path) -> None:
    """Copy what a model's folder has beside its weights: configuration, tokenizer and licence, no more."""
    for path in companions(source):
        shutil.copyfile(path, target / path.name)


def write_weights(folder: Path, tensors: Iterable[tuple[str, Tensor]]) -> Manifest:
    """Write tensors as they come, and beside them manifest.json: what was written."""
    writer, entries = WeightsWriter(folder), {}
    for name, tensor in tensors:
        writer.add(name, tensor)
        entries[name] = TensorEntry.of(tensor)
    writer.finish()
    manifest = Manifest(tensors=dict(sorted(entries.items())))
    (folder / "manifest.json").write_text(manifest.model_dump_json(indent=1))
    return manifest


class WeightsWriter:
    """Fills a folder with model.safetensors, or with numbered files and their index when one is not enough.

    It holds at most a file's tensors, or references to them: they must not change before `finish`.
    """

    def __init__(self, folder: Path, file_bytes: float = FILE_BYTES) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._pending: dict[str, Tensor] = {}
        self._written: list[list[str]] = []
        self._total = 0

    def add(self, name: str, tensor: Tensor) -> None:
        """Take a tensor, and write those before it when they would not fit into one file with it."""
        pending = sum(other.nbytes for other in self._pending.values())
        if self._pending and pending + tensor.nbytes > self._file_bytes:
            self._write()
        self._pending[name] = tensor
        self._total += tensor.nbytes

    def finish(self) -> None:
        """Write what is left, and give the files their names."""
        self._write()
        count = len(self._written)
        if count == 1:
            self._part(0).rename(self._folder / "model.safetensors")
            return
        file_of: dict[str, str] = {}
        for number, names in enumerate(self._written):
            file = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
            self._part(number).rename(self._folder / file)
            file_of |= dict.fromkeys(names, file)
        index = {"metadata": {"total_size": self._total}, "weight_map": dict(sorted(file_of.items()))}
        (self._folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))

    def _write(self) -> None:
        file = self._part(len(self._written))
        save_file(self._pending, file, metadata={"format": "pt"})
        apply_umask(file)
        self._written.append(list(self._pending))
        self._pending = {}

    def _part(self, number: int) -> Path:
        return self._folder / f"part-{number}.safetensors"
