"""What is written tensor by tensor is read as a whole."""

import json

import torch
from safetensors.torch import load_file

from infra.weights_folder import WeightsFolder
from tasks.model.bridge.writer import WeightsWriter

TENSORS = {f"layer.{number}": torch.full((4, 2), float(number)) for number in range(5)}
BYTES = 32


def write(folder, file_bytes):
    writer = WeightsWriter(folder, file_bytes)
    for name, tensor in TENSORS.items():
        writer.add(name, tensor)
    writer.finish()
    return sorted(path.name for path in folder.iterdir())


def test_what_fits_is_one_file(tmp_path):
    assert write(tmp_path, file_bytes=5 * BYTES) == ["model.safetensors"]
    assert load_file(tmp_path / "model.safetensors").keys() == TENSORS.keys()


def test_what_does_not_fit_is_numbered_files_with_an_index(tmp_path):
    files = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert write(tmp_path, file_bytes=2 * BYTES + 1) == [*files, "model.safetensors.index.json"]
    assert [len(load_file(tmp_path / file)) for file in files] == [2, 2, 1]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 5 * BYTES
    (tmp_path / "config.json").write_text("{}")
    with WeightsFolder(tmp_path) as weights:
        assert weights.names == set(TENSORS)
        assert all(torch.equal(weights.whole(name), TENSORS[name]) for name in TENSORS)


def test_a_tensor_larger_than_a_file_gets_one_of_its_own(tmp_path):
    assert len(write(tmp_path, file_bytes=1)) == len(TENSORS) + 1
