"""A real embedded engine serving the shipped tiny model, for tests that need answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.rollout import EmbeddedEngine
from infra.engines.client import EngineClient
from infra.engines.launch import launch_command
from infra.process import free_port, log_tail, spawn, stop_tree, wait_until

TINY_MODEL = Path(__file__).parents[2] / "configs" / "models" / "tiny-arithmetic"


@contextmanager
def tiny_engine(folder: Path, version: int) -> Iterator[EngineClient]:
    """A client of a new engine whose weights are stamped `version`; its log goes to the folder."""
    port, log = free_port(), folder / "engine.log"
    process = spawn(launch_command(EmbeddedEngine(), TINY_MODEL, port), log)
    client = EngineClient(f"http://127.0.0.1:{port}", timeout_s=60)
    try:
        wait_until(client.healthy, 120, "the engine")
        client.stamp(version)
        yield client
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {log_tail(log)}") from error
    finally:
        client.close()
        stop_tree(process.pid)
