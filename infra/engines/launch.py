"""The command that starts an engine, one function a kind of engine."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from configs.engine import EmbeddedEngine, EngineConfig, SGLangEngine


class Member(NamedTuple):
    """Which of the machines that an engine spans: the first answers requests."""

    rank: int = 0
    meeting: str = ""
    """host:port at which the members find each other; empty when there is one."""


@dataclass(frozen=True)
class Launch:
    """How to start a server: its command line, and what to add to the environment."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


_REUSE_LARGE_BUFFERS = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""For glibc, which otherwise maps new memory for each bucket of weights; to fault its pages in takes longer
than to copy them."""
ALONE = Member()
"""The member of an engine on one machine."""


def launch(config: EngineConfig, model_path: Path, host: str, port: int, member: Member = ALONE) -> Launch:
    """How to start the server that `config` asks for, listening on a port of `host`."""
    if isinstance(config, SGLangEngine):
        return _sglang(config, model_path, host, port, member)
    return _embedded(config, model_path, host, port)


def _embedded(config: EmbeddedEngine, model_path: Path, host: str, port: int) -> Launch:
    return Launch(
        [
            sys.executable,
            "-P",  # not from the working directory, whose packages may have the names of ours
            "-m",
            "infra.engines.embedded",
            f"--model-path={model_path}",
            f"--host={host}",
            f"--port={port}",
            f"--threads={config.threads}",
            f"--dtype={config.dtype}",
            f"--context-length={config.context_length}",
            f"--batch-size={config.batch_size}",
            f"--device={config.device}",
        ],
        _REUSE_LARGE_BUFFERS,
    )


def _sglang(config: SGLangEngine, model_path: Path, host: str, port: int, member: Member) -> Launch:
    options: dict[str, str | int | float | bool | None] = {
        "model-path": str(model_path),
        "host": host,
        "port": port,
        "device": config.device,
        "dtype": config.dtype,
        "context-length": config.context_length,
        "max-running-requests": config.batch_size,
        "max-total-tokens": config.max_total_tokens,
        "mem-fraction-static": config.memory_fraction,
        "tp-size": config.tensor_parallel,
        "dp-size": config.data_parallel,
        "ep-size": config.expert_parallel,
        "quantization": config.quantization,
        "attention-backend": config.attention_backend,
        "enable-deterministic-inference": config.deterministic,
        "enable-return-routed-experts": config.routed_experts,
        **config.arguments,
    }
    if config.nodes > 1:
        options |= {"nnodes": config.nodes, "node-rank": member.rank, "dist-init-addr": member.meeting}
    flags = [text for name, value in options.items() if (text := _flag(name, value))]
    command = [str(config.python), "-m", "sglang.launch_server", *flags]
    return Launch(command, _sglang_env(config))


def _flag(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    return f"--{name}" if value is True else f"--{name}={value}"


def _sglang_env(config: SGLangEngine) -> dict[str, str]:
    env = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": "", "OMP_NUM_THREADS": str(config.threads)}
    env["PYTHONSAFEPATH"] = "1"  # not from the working directory
    env["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] = "false"  # else /health fails in every pause
    if config.device == "cpu":
        all_cores = f"0-{(os.cpu_count() or 1) - 1}"
        ranks = config.tensor_parallel * config.data_parallel
        env["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join([all_cores] * ranks)
        env["TORCHDYNAMO_DISABLE"] = "1"  # compiling the sampler takes longer than it saves
    return env
