"""On which port an own server listens: the one that is named, or one that is free."""

import os
import socket
from pathlib import Path

import pytest

from infra.home import Home
from infra.identity import ProcessRef
from infra.process import free_port
from infra.services import PortTakenError, ServiceError, Services, ports
from infra.services.state import ServiceRecord, ServiceState


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OVERNIGHT_PREFECT_PORT", raising=False)
    monkeypatch.setattr(ports, "_RELEASE_S", 0)


def test_the_next_port_is_taken_where_the_usual_one_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        usual = other.getsockname()[1]
        monkeypatch.setitem(ports._USUAL, "prefect", usual)
        assert usual < ports.free_port("prefect", None, last_url=None) < usual + 100


def test_a_server_comes_back_on_the_port_that_it_had() -> None:
    port = free_port()
    assert ports.free_port("prefect", None, last_url=f"http://127.0.0.1:{port}") == port


@pytest.mark.parametrize("option", [0, 99999])
def test_a_port_that_is_none_is_refused_by_its_option(option: int) -> None:
    with pytest.raises(ServiceError, match=f"--prefect-port is '{option}': set it to a port number"):
        ports.named_port("prefect", option)


def test_a_named_port_is_not_swapped_for_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(PortTakenError, match="is taken"):
        ports.free_port("prefect", other.getsockname()[1], last_url=None)


def test_another_port_than_that_of_a_server_that_runs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = ProcessRef.of(os.getpid())
    ServiceState(tmp_path).put("prefect", ServiceRecord(process=me, url="http://127.0.0.1:4311"))
    services = Services(Home(tmp_path))
    for option in (4312, 99999):
        with pytest.raises(ServiceError):
            services.check(option)
    with pytest.raises(ServiceError, match=r"prefect runs at http://127.0.0.1:4311, not on port 4312"):
        services.ensure_prefect(4312)
    services.check(4311)
    monkeypatch.setenv("OVERNIGHT_PREFECT_PORT", "4313")
    with pytest.raises(ServiceError, match="not on port 4313"):
        services.check()
