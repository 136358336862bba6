"""Devices that are not there are told before anything starts, by the field that asks for them."""

import sys
import time
from pathlib import Path

import pytest
import torch

from configs.errors import UserError
from configs.loading import load_config
from configs.run import RunConfig
from infra.home import Home
from tasks.cluster.preflight import preflight
from tests.support.command import CONFIGS

SGLANG = f"engine={{kind: sglang, device: cuda, dtype: float32, python: {sys.executable}}}"


def config(*overrides: str) -> RunConfig:
    return load_config(CONFIGS / "tiny-cpu.yaml", list(overrides))


def refusal(tmp_path: Path, *overrides: str) -> str:
    """The line that the preflight gives, within seconds."""
    began = time.monotonic()
    with pytest.raises(UserError) as error:
        preflight(config(*overrides), Home(tmp_path))
    assert time.monotonic() - began < 30 and "\n" not in str(error.value)
    return str(error.value)


def python(tmp_path: Path, devices: int) -> Path:
    """An interpreter that has SGLang and so many devices."""
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\necho {devices}\n")
    file.chmod(0o755)
    return file


@pytest.mark.skipif(torch.cuda.is_available(), reason="is for machines without a GPU")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["engine.device=cuda"], 'engine.device "cuda" is not on this machine: set engine.device "cpu"'),
        (["engine.device=gpu"], 'engine.device "gpu" is none of PyTorch\'s: set "cpu" or "cuda"'),
        (
            ["trainer.backend=nccl"],
            'trainer.backend "nccl" takes a GPU for each of 1 ranks, and PyTorch finds 0',
        ),
        ([SGLANG], f"engine.python {sys.executable} has no SGLang"),
        ([SGLANG.replace(sys.executable, "/no/python")], "engine.python /no/python is not there"),
        ([SGLANG.replace(sys.executable, "/tmp")], "engine.python /tmp is not there"),
    ],
)
def test_what_this_machine_has_not(tmp_path: Path, settings: list[str], says: str) -> None:
    assert refusal(tmp_path, *settings).startswith(says)


@pytest.mark.parametrize(
    ("layout", "has", "says"),
    [
        (
            "tensor_parallel: 4",
            2,
            "1 engines of 4 and 0 ranks of the trainer need 4 devices, and this",
        ),
        ("count: 3", 2, "3 engines of 1 and 0 ranks of the trainer need 3 devices, and this machine has 2"),
        ("count: 1", 0, 'engine.device "cuda" is not on this machine'),
    ],
)
def test_fewer_than_sglang_is_to_take(tmp_path: Path, layout: str, has: int, says: str) -> None:
    engine = SGLANG.replace(sys.executable, str(python(tmp_path, has))).replace("}", f", {layout}}}")
    assert says in refusal(tmp_path, engine)


def test_trainer_and_engines_do_not_share_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    settings = ["engine.device=cuda", "trainer.backend=nccl"]
    preflight(config(*settings), Home(tmp_path))
    line = refusal(tmp_path, *settings, "evaluation.engines=1")
    assert "2 engines of 1 and 1 ranks of the trainer need 3 devices, and this machine has 2" in line
    assert line.endswith("lower engine.count or evaluation.engines")
