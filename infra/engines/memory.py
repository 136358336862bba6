"""Accelerator memory, as the vendors' tools report it: a killed server's may take a while to come back."""

import json
import os
import shutil
import subprocess

from infra.process import wait_until

_SLACK_BYTES = 1 << 30
_TOOL_TIMEOUT_S = 30


def used_bytes() -> dict[str, int]:
    """Bytes in use on each accelerator that this process may use, by its index; empty without one."""
    if shutil.which("nvidia-smi"):
        used = _nvidia()
    elif shutil.which("rocm-smi"):
        used = _amd()
    else:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", os.environ.get("HIP_VISIBLE_DEVICES"))
    return used if visible is None else {name: used[name] for name in visible.split(",") if name in used}


def await_release(before: dict[str, int], timeout_s: float = 60) -> None:
    """Wait until no accelerator has clearly more in use than `before`; TimeoutError when it is late."""

    def released() -> bool:
        return all(now <= before.get(name, now) + _SLACK_BYTES for name, now in used_bytes().items())

    wait_until(released, timeout_s, "the accelerators' memory")


def _nvidia() -> dict[str, int]:
    """Lines such as `0, 81559`: index, MiB."""
    lines = _output(["nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"])
    return {
        index.strip(): int(used) << 20 for index, used in (line.split(",") for line in lines.splitlines())
    }


def _amd() -> dict[str, int]:
    """An object such as {"card0": {"VRAM Total Used Memory (B)": "298422272", ..}, ..}."""
    cards = json.loads(_output(["rocm-smi", "--showmeminfo", "vram", "--json"]))
    return {
        name.removeprefix("card"): int(card["VRAM Total Used Memory (B)"])
        for name, card in cards.items()
        if name.startswith("card")
    }


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TOOL_TIMEOUT_S).stdout
