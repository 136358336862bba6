"""The command that starts an engine, one function a kind of engine."""

import sys
from pathlib import Path

from configs.rollout import EmbeddedEngine


def launch_command(config: EmbeddedEngine, model_path: Path, port: int) -> list[str]:
    """Command line of the server that `config` asks for, on a port of 127.0.0.1."""
    return [
        sys.executable,
        "-m",
        "infra.engines.embedded",
        f"--model-path={model_path}",
        "--host=127.0.0.1",
        f"--port={port}",
        f"--threads={config.threads}",
        f"--dtype={config.dtype}",
        f"--context-length={config.context_length}",
        f"--batch-size={config.batch_size}",
        f"--device={config.device}",
    ]
