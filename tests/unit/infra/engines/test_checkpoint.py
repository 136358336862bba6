"""Reading what a checkpoint folder holds, and what does not fit."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from infra.engines.checkpoint import (
    WeightsMismatch,
    read_checkpoint,
    require_architecture,
    require_complete,
    require_fit,
)

SHAPES = {"a": (2, 3), "b": (4,)}
TENSORS = {name: torch.zeros(shape) for name, shape in SHAPES.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_config(tmp_path)
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path


def write_config(folder: Path, **more: object) -> None:
    (folder / "config.json").write_text(json.dumps({"architectures": ["A"], "num_hidden_layers": 3, **more}))


def test_names_shapes_and_layers_are_told_by_the_headers(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    assert (checkpoint.architectures, checkpoint.layers) == (("A",), 3)
    assert checkpoint.shapes == SHAPES


def test_shards_are_read_together_and_each_must_be_there(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    for name, tensor in TENSORS.items():
        save_file({name: tensor}, folder / f"{name}.safetensors")
    index = {"weight_map": {name: f"{name}.safetensors" for name in TENSORS}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_checkpoint(folder).shapes == SHAPES
    (folder / "b.safetensors").unlink()
    with pytest.raises(WeightsMismatch, match=r"b\.safetensors is missing"):
        read_checkpoint(folder)


@pytest.mark.parametrize("tied", [False, True])
def test_a_tied_head_is_no_tensor(folder: Path, tied: bool) -> None:
    write_config(folder, tie_word_embeddings=tied)
    save_file({**TENSORS, "lm_head.weight": torch.zeros(1)}, folder / "model.safetensors")
    assert ("lm_head.weight" in read_checkpoint(folder).shapes) is not tied


@pytest.mark.parametrize("cut", [1, 30, 10_000])
def test_a_torn_file_is_told(folder: Path, cut: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(WeightsMismatch, match="not a whole safetensors file"):
        read_checkpoint(folder)


def test_a_torn_configuration_is_told(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(WeightsMismatch, match=r"config\.json cannot be read"):
        read_checkpoint(folder)


def test_an_architecture_must_be_the_served_one(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    require_architecture(checkpoint, ("A",))
    with pytest.raises(WeightsMismatch, match="holds a A, this engine serves a B"):
        require_architecture(checkpoint, ["B"])


def test_every_served_tensor_must_be_offered(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    require_complete(checkpoint, SHAPES)
    with pytest.raises(WeightsMismatch, match=r"lacks 1 of 3 tensors \(first: c\)"):
        require_complete(checkpoint, [*SHAPES, "c"])


def test_every_offered_tensor_must_be_served_in_its_shape() -> None:
    require_fit({"a": (2, 3)}, SHAPES)
    with pytest.raises(WeightsMismatch, match=r"1 names are not of the served model \(first: c\)"):
        require_fit({**SHAPES, "c": (1,)}, SHAPES)
    with pytest.raises(WeightsMismatch, match=r"b has shape \[5\], the served model needs \[4\]"):
        require_fit({"b": (5,)}, SHAPES)
