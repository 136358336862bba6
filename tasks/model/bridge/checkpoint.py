"""Reading tensors, or parts of them, from a Hugging Face checkpoint folder."""

import json
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors import safe_open
from torch import Tensor

from tasks.model.errors import WeightsMismatch

_WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.gguf", "manifest.json")


def copy_companions(source: Path, target: Path) -> None:
    """Copy what a checkpoint folder has beside its weights: configuration and tokenizer."""
    for path in sorted(source.iterdir()):
        if path.is_file() and not any(path.match(pattern) for pattern in _WEIGHT_FILES):
            shutil.copyfile(path, target / path.name)


class HfCheckpoint:
    """A folder with model.safetensors, or with shards and model.safetensors.index.json. Use with `with`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Any] = {}
        index = folder / "model.safetensors.index.json"
        if index.exists():
            self._file_of: dict[str, str] = json.loads(index.read_text())["weight_map"]
        elif (folder / "model.safetensors").exists():
            names = self._open("model.safetensors").keys()
            self._file_of = dict.fromkeys(names, "model.safetensors")
        else:
            raise WeightsMismatch(
                f"{folder}: no model.safetensors: give the folder of a safetensors checkpoint"
            )

    @property
    def names(self) -> set[str]:
        """Names of all tensors."""
        return set(self._file_of)

    def whole(self, name: str) -> Tensor:
        """A tensor."""
        return self._open(self._file_of[name]).get_tensor(name)

    def part(self, name: str, dim: int | None, rank: int, ranks: int) -> Tensor:
        """The `rank`-th of `ranks` equal parts along `dim`, only its bytes read; None reads the whole tensor.

        Where the size is not a multiple of the ranks, the last part is shorter.
        """
        if dim is None:
            return self.whole(name)
        tensor = self._open(self._file_of[name]).get_slice(name)
        size = tensor.get_shape()[dim]
        step = -(-size // ranks)
        start, stop = min(rank * step, size), min((rank + 1) * step, size)
        return tensor[start:stop] if dim == 0 else tensor[:, start:stop]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        return tuple(self._open(self._file_of[name]).get_slice(name).get_shape())

    def __enter__(self) -> "HfCheckpoint":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.__exit__(kind, error, trace)

    def _open(self, file: str) -> Any:
        if file not in self._files:
            self._files[file] = safe_open(self._folder / file, framework="pt").__enter__()
        return self._files[file]
