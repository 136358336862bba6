"""The pages of our Prefect server talk to it and to no other, on whatever port a browser reaches them."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from infra.home import Home
from infra.process import free_port
from infra.services import Services
from tests.support.forward import forwarded
from tests.support.servers import prefect_server

pytestmark = [pytest.mark.slow, pytest.mark.services]


def with_a_run(url: str, name: str) -> str:
    """The server, after a flow run of that name."""
    flow = httpx.post(f"{url}/api/flows/", json={"name": "nightly-rl"}, timeout=30).raise_for_status().json()
    run = {"flow_id": flow["id"], "name": name, "state": {"type": "COMPLETED"}}
    httpx.post(f"{url}/api/flow_runs/", json=run, timeout=30).raise_for_status()
    return url


def runs_of(url: str) -> int:
    return httpx.post(f"{url}/api/flow_runs/count", json={}, timeout=30).json()


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Another team's server."""
    with prefect_server(tmp_path_factory.mktemp("another")) as url:
        yield with_a_run(url, "of-another-team")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    services = Services(Home(tmp_path_factory.mktemp("ours")))
    try:
        yield with_a_run(services.ensure_prefect(free_port()), "of-ours")
    finally:
        services.stop_all()


def ports_asked(page, url: str) -> set[int | None]:
    """Ports of this machine that the page asks on the way to showing our run, which it must show alone."""
    asked: set[int | None] = set()

    def note(address: str) -> None:
        place = urlsplit(address)
        if place.hostname in ("127.0.0.1", "localhost"):
            asked.add(place.port)

    page.on("request", lambda request: note(request.url))
    page.on("websocket", lambda socket: note(socket.url))
    for path in ("/runs", "/v2/runs", "/v2/deployments", "/v2/events"):
        page.goto(url + path)
        page.wait_for_load_state("networkidle")
    page.goto(f"{url}/v2/runs")
    page.get_by_text("of-ours").first.wait_for()
    assert not page.get_by_text("of-another-team").count()
    return asked


def test_pages_ask_our_own_server_beside_another_one(ours: str, another: str, page) -> None:
    assert ports_asked(page, ours) == {urlsplit(ours).port}


def test_pages_through_a_forwarded_port_ask_that_port(ours: str, another: str, page) -> None:
    with forwarded(urlsplit(ours).port or 0) as port:
        assert ports_asked(page, f"http://127.0.0.1:{port}") == {port}


def test_a_button_acts_on_our_server(ours: str, another: str, page) -> None:
    page.goto(f"{ours}/v2/runs")
    page.get_by_text("of-ours").first.wait_for()
    page.get_by_role("checkbox").last.click()
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_role("button", name="Delete").last.click()
    page.get_by_text("of-ours").first.wait_for(state="detached")
    left = {
        url: httpx.post(f"{url}/api/flow_runs/count", json={}, timeout=30).json() for url in (ours, another)
    }
    assert left == {ours: 0, another: 1}
