"""What a checkpoint folder holds, told by its headers alone, and whether that fits a served model."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from configs.errors import RunFailure

Shapes = Mapping[str, tuple[int, ...]]
"""Tensor names of a checkpoint to shapes."""
_HEAD = "lm_head.weight"


class WeightsMismatch(RunFailure):
    """Offered weights do not fit the served model; nothing was changed."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder in Hugging Face's layout: config.json and safetensors files, each of them whole."""

    folder: Path
    architectures: tuple[str, ...]
    layers: int | None
    """Hidden layers, where the configuration tells."""
    files: tuple[Path, ...]
    shapes: dict[str, tuple[int, ...]]
    """Every tensor; a head that is tied to the embedding is none."""


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder's configuration and headers; WeightsMismatch when it is not a whole checkpoint."""
    config = _read_json(folder / "config.json")
    files = _files(folder)
    shapes = {name: shape for file in files for name, shape in _shapes(file).items()}
    if config.get("tie_word_embeddings"):
        shapes.pop(_HEAD, None)
    layers = config.get("text_config", config).get("num_hidden_layers")
    return Checkpoint(folder, tuple(config.get("architectures") or ()), layers, files, shapes)


def require_architecture(offered: Checkpoint, served: Iterable[str]) -> None:
    """WeightsMismatch unless the checkpoint is of the served architecture."""
    if offered.architectures != tuple(served):
        raise WeightsMismatch(
            f"{offered.folder} holds a {', '.join(offered.architectures) or 'model without architecture'}, "
            f"this engine serves a {', '.join(served)}"
        )


def require_complete(offered: Checkpoint, served: Iterable[str]) -> None:
    """WeightsMismatch unless the checkpoint has every served tensor."""
    names = list(served)
    missing = sorted(set(names) - offered.shapes.keys())
    if missing:
        raise WeightsMismatch(
            f"{offered.folder} lacks {len(missing)} of {len(names)} tensors (first: {missing[0]}): "
            "give a complete checkpoint of the served architecture"
        )


def require_fit(offered: Shapes, served: Shapes) -> None:
    """WeightsMismatch unless every offered tensor is served, in that shape."""
    unknown = sorted(offered.keys() - served.keys())
    if unknown:
        raise WeightsMismatch(f"{len(unknown)} names are not of the served model (first: {unknown[0]})")
    for name, shape in offered.items():
        if shape != served[name]:
            raise WeightsMismatch(
                f"{name} has shape {list(shape)}, the served model needs {list(served[name])}"
            )


def _files(folder: Path) -> tuple[Path, ...]:
    index = folder / "model.safetensors.index.json"
    names = sorted(set(_read_json(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    files = tuple(folder / name for name in names)
    absent = [file for file in files if not file.exists()]
    if absent:
        raise WeightsMismatch(f"{absent[0]} is missing: give the folder of a safetensors checkpoint")
    return files


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safe_open(file, framework="numpy") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise WeightsMismatch(f"{file} is not a whole safetensors file: {error}") from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except OSError:
        raise WeightsMismatch(f"{file} is missing: give the folder of a checkpoint") from None
    except ValueError as error:
        raise WeightsMismatch(f"{file} cannot be read: {error}") from error
