"""A weights folder is read whole, or told not to be."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from infra.weights_folder import WeightsFolder, WeightsMismatch

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
    weights = WeightsFolder(folder)
    assert (weights.architectures, weights.layers) == (("A",), 3)
    assert weights.shapes == SHAPES


def test_shards_are_read_together_and_each_must_be_there(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    for name, tensor in TENSORS.items():
        save_file({name: tensor}, folder / f"{name}.safetensors")
    index = {"weight_map": {name: f"{name}.safetensors" for name in TENSORS}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert WeightsFolder(folder).shapes == SHAPES
    (folder / "b.safetensors").unlink()
    with pytest.raises(WeightsMismatch, match=r"b\.safetensors is missing"):
        WeightsFolder(folder)


@pytest.mark.parametrize("tied", [False, True])
def test_a_tied_head_is_no_tensor(folder: Path, tied: bool) -> None:
    write_config(folder, tie_word_embeddings=tied)
    save_file({**TENSORS, "lm_head.weight": torch.zeros(1)}, folder / "model.safetensors")
    assert ("lm_head.weight" in WeightsFolder(folder).shapes) is not tied


@pytest.mark.parametrize("cut", [1, 30, 10_000])
def test_a_torn_file_is_told(folder: Path, cut: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(WeightsMismatch, match="not a whole safetensors file"):
        WeightsFolder(folder)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("model.safetensors.index.json", "{"),
        ("model.safetensors.index.json", "{}"),
    ],
)
def test_a_torn_description_is_told_in_one_line(folder: Path, file: str, text: str) -> None:
    (folder / file).write_text(text)
    with pytest.raises(WeightsMismatch, match=rf"{file} cannot be read: ") as told:
        WeightsFolder(folder)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_what_is_missing_or_a_folder_is_told(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(WeightsMismatch, match=rf"{file} is missing: give a folder"):
        WeightsFolder(folder)
    (folder / file).mkdir()
    with pytest.raises(WeightsMismatch, match=rf"{file} (cannot be read|is not a whole)"):
        WeightsFolder(folder)


def test_tensors_are_read_whole_and_in_parts(folder: Path) -> None:
    tensor = torch.arange(10.0).view(5, 2)
    save_file({"a": tensor}, folder / "model.safetensors")
    with WeightsFolder(folder) as weights:
        assert torch.equal(weights.whole("a"), tensor)
        assert torch.equal(weights.part("a", None, 1, 2), tensor)
        assert torch.equal(weights.part("a", 0, 1, 2), tensor[3:])
        assert torch.equal(weights.part("a", 1, 1, 2), tensor[:, 1:])
        with pytest.raises(WeightsMismatch, match="has no tensor b"):
            weights.whole("b")


def test_a_folder_is_read_again_after_it_was_closed(folder: Path) -> None:
    weights = WeightsFolder(folder)
    for _ in range(2):
        with weights:
            assert torch.equal(weights.whole("b"), TENSORS["b"])


def test_a_file_that_goes_between_two_reads_is_told(folder: Path) -> None:
    weights = WeightsFolder(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(WeightsMismatch, match="is missing"), weights:
        weights.whole("a")
