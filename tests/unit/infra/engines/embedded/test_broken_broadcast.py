"""A trainer that is gone in the middle of a broadcast leaves an engine that tells and takes other weights."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors.torch import load_file

from configs.engine import EmbeddedEngine
from infra.engines.client import EngineClient, EngineRefused
from infra.process import free_port
from infra.process_group import broadcast, join_group, leave_group
from tests.support.engines import TINY_MODEL, running_engine

pytestmark = pytest.mark.slow


def broken_broadcast(client: EngineClient) -> None:
    """Announce all tensors, send two of them with other values, and leave."""
    tensors = {name: tensor + 1 for name, tensor in load_file(TINY_MODEL / "model.safetensors").items()}
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(client.init_update_group, "127.0.0.1", port, 1, 2, "broken", "gloo")
        group = join_group("127.0.0.1", port, 2, 0, "broken", "gloo", timeout_s=20)
        joined.result(timeout=20)
        shapes = [tuple(tensor.shape) for tensor in tensors.values()]
        receiving = pool.submit(
            client.update_from_group, list(tensors), ["float32"] * len(tensors), shapes, "broken"
        )
        broadcast(list(tensors.values())[:2], group)
        leave_group(group)
        del group  # with it its connections
        receiving.result(timeout=60)


def test_it_is_refused_and_a_whole_update_mends_what_was_received(tmp_path: Path) -> None:
    with running_engine(EmbeddedEngine(), TINY_MODEL, tmp_path / "engine.log") as served:
        before = served.client.checksums()
        served.client.begin_update()
        with pytest.raises(EngineRefused, match="broadcast over broken failed"):
            broken_broadcast(served.client)
        served.client.destroy_update_group("broken")
        served.client.end_update()
        assert served.client.checksums() != before
        served.client.update_from_disk(TINY_MODEL)
        assert served.client.checksums() == before
