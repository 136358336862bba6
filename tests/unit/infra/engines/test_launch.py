"""Command lines of engines: snapshots, so that a review sees every change of launch flags.

A line is an argument, the environment first. `--update-snapshots` writes them anew.
"""

import os
import sys
from pathlib import Path

import pytest

import configs
from configs.engine import EmbeddedEngine, EngineConfig, SGLangEngine
from configs.loading import load_config
from infra.engines.launch import Launch, Member, launch
from infra.engines.router import launch_router
from infra.process import LOOPBACK

PRESETS = sorted(Path(configs.__file__).parent.glob("*.yaml"))
SNAPSHOTS = Path(__file__).parent / "launch"
MODEL = Path("/models/served")
GPU_ENGINES: dict[str, EngineConfig] = {
    "sglang-gpu-moe": SGLangEngine(
        kind="sglang",
        python=Path("/opt/sglang/bin/python"),
        context_length=16384,
        batch_size=48,
        tensor_parallel=8,
        expert_parallel=4,
        memory_fraction=0.7,
        quantization="fp8",
        attention_backend="triton",
        routed_experts=True,
        arguments={"page-size": 64, "disable-radix-cache": True, "chunked-prefill-size": -1},
    ),
    "sglang-gpu-two-nodes": SGLangEngine(
        kind="sglang",
        python=Path("/opt/sglang/bin/python"),
        tensor_parallel=8,
        data_parallel=2,
        nodes=2,
        deterministic=False,
    ),
    "embedded-gpu": EmbeddedEngine(device="cuda", dtype="bfloat16", threads=4),
}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def check_snapshot(name: str, server: Launch, update: bool) -> None:
    root = str(Path(configs.__file__).parents[1])
    lines = [f"{key}={value}" for key, value in sorted(server.env.items())] + server.command
    text = "".join(line.replace(sys.executable, "<python>").replace(root, "<root>") + "\n" for line in lines)
    snapshot = SNAPSHOTS / f"{name}.txt"
    if update:
        snapshot.write_text(text)
    assert text == snapshot.read_text()


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.stem)
def test_the_command_lines_of_the_presets(preset: Path, update_snapshots: bool) -> None:
    check_snapshot(preset.stem, launch(load_config(preset).engine, MODEL, LOOPBACK, 30000), update_snapshots)


@pytest.mark.parametrize("name", GPU_ENGINES)
def test_the_command_lines_of_larger_engines(name: str, update_snapshots: bool) -> None:
    member = Member(1, "10.0.0.1:20000") if GPU_ENGINES[name].machines > 1 else Member()
    check_snapshot(name, launch(GPU_ENGINES[name], MODEL, LOOPBACK, 30000, member), update_snapshots)


def test_the_command_line_of_the_router(update_snapshots: bool) -> None:
    check_snapshot("router", launch_router(LOOPBACK, 30000, 29000, timeout_s=600), update_snapshots)


def test_every_snapshot_belongs_to_a_command_line() -> None:
    named = {preset.stem for preset in PRESETS} | set(GPU_ENGINES) | {"router"}
    assert {file.stem for file in SNAPSHOTS.iterdir()} == named


def _names(config: EngineConfig) -> set[str]:
    """The arguments that the launcher itself sets."""
    flags = launch(config, MODEL, LOOPBACK, 30000, Member(1, "a:1")).command[3:]
    return {flag.removeprefix("--").partition("=")[0] for flag in flags}


def test_no_argument_that_the_launcher_sets_can_be_given_twice() -> None:
    full = GPU_ENGINES["sglang-gpu-moe"].model_copy(
        update={"arguments": {}, "nodes": 2, "max_total_tokens": 1024}
    )
    for name in _names(full):
        with pytest.raises(ValueError, match=r"has a field of its own|is set by the run"):
            SGLangEngine(kind="sglang", python=Path("/python"), arguments={name: 1})
