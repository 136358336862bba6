"""What does not fit a served model is told by its name."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from infra.engines.fit import require_architecture, require_complete, require_fit
from infra.weights_folder import WeightsFolder, WeightsMismatch

SHAPES = {"a": (2, 3), "b": (4,)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["A"]}))
    save_file({name: torch.zeros(shape) for name, shape in SHAPES.items()}, tmp_path / "model.safetensors")
    return tmp_path


def test_an_architecture_must_be_the_served_one(folder: Path) -> None:
    weights = WeightsFolder(folder)
    require_architecture(weights, ("A",))
    with pytest.raises(WeightsMismatch, match="holds a A, this engine serves a B"):
        require_architecture(weights, ["B"])


def test_every_served_tensor_must_be_offered(folder: Path) -> None:
    weights = WeightsFolder(folder)
    require_complete(weights, SHAPES)
    with pytest.raises(WeightsMismatch, match=r"lacks 1 of 3 tensors \(first: c\)"):
        require_complete(weights, [*SHAPES, "c"])


def test_every_offered_tensor_must_be_served_in_its_shape() -> None:
    require_fit({"a": (2, 3)}, SHAPES)
    with pytest.raises(WeightsMismatch, match=r"1 names are not of the served model \(first: c\)"):
        require_fit({**SHAPES, "c": (1,)}, SHAPES)
    with pytest.raises(WeightsMismatch, match=r"b has shape \[5\], the served model needs \[4\]"):
        require_fit({"b": (5,)}, SHAPES)
