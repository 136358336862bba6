"""The served weights under the names of their Hugging Face checkpoint, read and replaced in place."""

import json
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from infra.engines.checksum import tensor_hash


class WeightsMismatch(ValueError):
    """Offered weights do not fit the served model; nothing was changed."""


class LiveWeights:
    """Views of a model's parameters: writing to one changes what is served, at once and in place."""

    def __init__(self, module: PreTrainedModel) -> None:
        self._views = checkpoint_views(module)
        self._tied = frozenset(module.all_tied_weights_keys)

    def checksums(self) -> dict[str, str]:
        """Hash of every tensor."""
        return {name: tensor_hash(view) for name, view in self._views.items()}

    def get(self, name: str) -> torch.Tensor:
        """A tensor; WeightsMismatch for a name that the checkpoint does not have."""
        self._require_known([name])
        return self._views[name].detach()

    def load_folder(self, folder: Path) -> None:
        """Replace all weights by those of a safetensors checkpoint, once it is known to have them all."""
        files = checkpoint_files(folder)
        shapes = {name: shape for file in files for name, shape in _shapes(file).items()}
        missing = sorted(self._views.keys() - shapes.keys())
        if missing:
            raise WeightsMismatch(
                f"{folder} lacks {len(missing)} of {len(self._views)} tensors (first: {missing[0]}): "
                "give a complete checkpoint of the served architecture"
            )
        wanted = {name: shape for name, shape in shapes.items() if name not in self._tied}
        self._require_shapes(wanted)
        for file in files:
            with safe_open(file, framework="pt") as tensors:
                names = wanted.keys() & tensors.keys()
                self._write({name: tensors.get_tensor(name) for name in names})

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Replace the named weights; WeightsMismatch, with nothing changed, when one does not fit."""
        self._require_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()})
        self._write(tensors)

    @torch.no_grad()
    def _write(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for name, tensor in tensors.items():
            self._views[name].copy_(tensor)

    def _require_known(self, names: list[str]) -> None:
        unknown = sorted(set(names) - self._views.keys())
        if unknown:
            raise WeightsMismatch(f"{len(unknown)} names are not of the served model (first: {unknown[0]})")

    def _require_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._require_known(list(shapes))
        for name, shape in shapes.items():
            served = tuple(self._views[name].shape)
            if shape != served:
                raise WeightsMismatch(
                    f"{name} has shape {list(shape)}, the served model needs {list(served)}"
                )


def checkpoint_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint folder; WeightsMismatch when there are none or one is missing."""
    index = folder / "model.safetensors.index.json"
    names = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else None
    files = [folder / name for name in names or ["model.safetensors"]]
    absent = [file for file in files if not file.exists()]
    if absent:
        raise WeightsMismatch(f"{absent[0]} is missing: give the folder of a safetensors checkpoint")
    return files


def checkpoint_views(module: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Name in the checkpoint that save_pretrained would write -> view of the parameter that holds the tensor.

    transformers fuses some tensors (the experts of a layer, say) into one parameter. Where a checkpoint
    tensor lies in it is read off by sending element numbers instead of weights through the conversion.
    """
    state = {name: t for name, t in module.state_dict().items() if name not in module.all_tied_weights_keys}
    starts = [0, *accumulate(tensor.numel() for tensor in state.values())]
    numbers = {
        name: torch.arange(start, start + tensor.numel()).view(tensor.shape)
        for (name, tensor), start in zip(state.items(), starts, strict=False)
    }
    converted = revert_weight_conversion(module, numbers)
    if converted is numbers:
        return state
    parameters = list(state.values())
    views = {}
    for name, number in converted.items():
        first = int(number.flatten()[0])
        position = bisect_right(starts, first) - 1
        views[name] = _view(name, parameters[position], number - starts[position])
    return views


def _view(name: str, parameter: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """The strided view of a contiguous parameter whose elements have the given numbers in it."""
    origin = number[(0,) * number.dim()]
    strides = [
        int(number.select(dim, 1)[(0,) * (number.dim() - 1)] - origin) if size > 1 else 1
        for dim, size in enumerate(number.shape)
    ]
    offset = parameter.storage_offset() + int(origin)
    every = torch.arange(parameter.numel())
    if not torch.equal(every.as_strided(number.shape, strides, int(origin)), number):
        raise WeightsMismatch(
            f"{name} is not stored as a part of one parameter: it cannot be replaced in place"
        )
    return parameter.as_strided(number.shape, strides, offset)


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safe_open(file, framework="pt") as tensors:
            names = list(tensors.keys())
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        raise WeightsMismatch(f"{file} is not a whole safetensors file: {error}") from error
