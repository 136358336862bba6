"""The command line of an engine."""

import sys
from pathlib import Path

from configs.rollout import EmbeddedEngine
from infra.engines.launch import launch_command


def test_the_command_of_the_embedded_engine() -> None:
    config = EmbeddedEngine(threads=2, dtype="bfloat16", context_length=512, batch_size=64)
    assert launch_command(config, Path("/models/tiny"), 30001) == [
        sys.executable,
        "-m",
        "infra.engines.embedded",
        "--model-path=/models/tiny",
        "--host=127.0.0.1",
        "--port=30001",
        "--threads=2",
        "--dtype=bfloat16",
        "--context-length=512",
        "--batch-size=64",
        "--device=cpu",
    ]
