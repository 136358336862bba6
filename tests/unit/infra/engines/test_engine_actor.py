"""An engine's process: started, found taken, broken, killed, stopped."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from configs.cluster import LocalClusterConfig
from configs.engine import EmbeddedEngine
from configs.store import LocalStoreConfig
from infra import address as address_module
from infra.address import Address
from infra.cluster.local import LocalCluster
from infra.engines.actor import EngineActor
from infra.engines.client import EngineClient
from infra.engines.server import EngineStartError
from infra.home import Home
from infra.process import free_port
from infra.store import StoredFolder
from infra.store.base import KeyMissingError
from tests.support.chaos import server_at
from tests.support.engines import TINY_MODEL

LOCAL = LocalCluster(LocalClusterConfig(), Home(Path("home")))


class Elsewhere(LocalCluster):
    """A provider whose machines are known by another address than they listen on."""

    def address(self) -> Address:
        return Address(bind="0.0.0.0", advertised="127.0.0.2")


def stored(folder: Path) -> StoredFolder:
    """A folder as one of a store that it lies in."""
    return StoredFolder(LocalStoreConfig(path=folder.parent), Home(folder), folder.name)


TINY = stored(TINY_MODEL)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "engine.log"


@pytest.fixture
def engine(log: Path) -> Iterator[EngineActor]:
    engine = EngineActor(EmbeddedEngine(start_timeout_s=60), 0, log, LOCAL)
    yield engine
    engine.stop()


@pytest.mark.slow
def test_a_killed_engine_is_started_again_and_a_live_one_is_kept(
    engine: EngineActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not engine.alive()
    with socket.create_server(("127.0.0.1", 0)) as holder:  # a free port that somebody takes in between
        ports = iter([holder.getsockname()[1], free_port(), free_port()])
        monkeypatch.setattr(address_module, "free_port", lambda host: next(ports))
        url = engine.start(TINY)
        assert not url.endswith(f":{holder.getsockname()[1]}")
    assert engine.alive()
    assert engine.start(TINY) == url == engine.url()
    assert EngineClient(url).model_info().model_path == str(TINY_MODEL)

    server_at(url).kill()
    assert not engine.alive()
    again = engine.start(TINY)
    assert engine.alive()
    server = server_at(again)
    engine.stop()
    engine.stop()
    assert not engine.alive()
    assert not server.is_running()


@pytest.mark.slow
def test_an_engine_listens_and_is_found_where_the_provider_of_its_machine_says(log: Path) -> None:
    elsewhere = Elsewhere(LocalClusterConfig(), Home(Path("home")))
    engine = EngineActor(EmbeddedEngine(start_timeout_s=60), 0, log, elsewhere)
    assert engine.meeting().startswith("127.0.0.2:")
    url = engine.start(TINY)
    try:
        assert url.startswith("http://127.0.0.2:") and engine.alive(generates=True)
        listening = [n for n in server_at(url).net_connections() if n.status == psutil.CONN_LISTEN]
        assert {n.laddr.ip for n in listening} == {"0.0.0.0"}
    finally:
        engine.stop()


def test_a_taken_port_names_the_field_to_change(log: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        engine = EngineActor(EmbeddedEngine(port=taken - 1), 1, log, LOCAL)
        with pytest.raises(EngineStartError, match=rf"port {taken} is taken: .* engine\.port"):
            engine.start(TINY)


@pytest.mark.slow
def test_a_broken_folder_is_told_from_the_log(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY_MODEL, folder)
    (folder / "model.safetensors").unlink()
    engine = EngineActor(EmbeddedEngine(start_timeout_s=60), 3, log, LOCAL)
    with pytest.raises(EngineStartError, match=r"engine 3 ended with code 1: .*safetensors is missing"):
        engine.start(stored(folder))
    assert not engine.alive()


def test_weights_that_are_not_in_the_store_are_named(log: Path) -> None:
    engine = EngineActor(EmbeddedEngine(), 0, log, LOCAL)
    with pytest.raises(KeyMissingError, match="nowhere: no such folder in the store"):
        engine.start(stored(TINY_MODEL.with_name("nowhere")))


@pytest.mark.slow
def test_a_start_that_takes_too_long_leaves_nothing_behind(log: Path) -> None:
    engine = EngineActor(EmbeddedEngine(start_timeout_s=0.3), 0, log, LOCAL)
    before = set(psutil.Process().children())
    with pytest.raises(EngineStartError, match=r"engine\.start_timeout_s 0\.3 s"):
        engine.start(TINY)
    assert set(psutil.Process().children()) <= before
