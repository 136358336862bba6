"""Accelerator memory as the vendors' tools tell it, with tools that answer as theirs do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.engines.memory import await_release, used_bytes

Tool = Callable[[str, str], None]
GIB = 1 << 30
NVIDIA = "0, 1024\\n1, 40960\\n"
AMD = '{"card0": {"VRAM Total Memory (B)": "9", "VRAM Total Used Memory (B)": "5"}, "system": {}}'


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Puts a command that prints a text on an otherwise empty path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)

    def install(name: str, text: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '%b' '{text}'\n")
        (tmp_path / name).chmod(0o755)

    return install


def test_a_machine_without_an_accelerator_has_nothing_to_wait_for(tool: Tool) -> None:
    assert used_bytes() == {}
    await_release({}, timeout_s=0)


def test_each_vendors_tool_is_understood(tool: Tool) -> None:
    tool("rocm-smi", AMD)
    assert used_bytes() == {"0": 5}
    tool("nvidia-smi", NVIDIA)
    assert used_bytes() == {"0": GIB, "1": 40 * GIB}


def test_only_what_this_process_may_use_counts(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("nvidia-smi", NVIDIA)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert used_bytes() == {"1": 40 * GIB}


def test_memory_that_does_not_come_back_is_told(tool: Tool) -> None:
    tool("nvidia-smi", NVIDIA)
    await_release({"0": GIB, "1": 40 * GIB}, timeout_s=0)
    with pytest.raises(TimeoutError, match="accelerators' memory"):
        await_release({"0": GIB, "1": 2 * GIB}, timeout_s=0.3)
