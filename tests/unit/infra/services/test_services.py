"""Real servers. The Prefect server is started once, by a command that is killed right after."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from infra.home import Home
from infra.identity import ProcessRef
from infra.process import free_port, port_is_free, stop_tree, wait_until
from infra.services import PortTakenError, ServiceError, Services, ServiceStatus, crashes
from infra.services.prefect_api import FlowRun, PrefectApi, TaskRun
from infra.services.state import ServiceName, ServiceRecord, ServiceState

STARTER = """
import sys, time
from pathlib import Path
from infra.home import Home
from infra.services import Services

print(Services(Home(Path(sys.argv[1]))).ensure_prefect(), flush=True)
time.sleep(600)
"""

FLOW = """
import sys, time
from pathlib import Path
from infra.home import Home
from infra.services import Services

services = Services(Home(Path(sys.argv[1])))
services.connect(services.ensure_prefect())
from prefect import flow, tags, task
from flows.ownership import claim

@task
def step():
    print("working", flush=True)
    time.sleep(600)

@flow
def train():  # not claimed, as for a moment every subflow
    step()

@flow(on_running=[claim])
def nightly():
    train()

with tags("run:one"):
    nightly()
"""


def python(program: str, home: Home, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(home.root)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def printed_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def status(services: Services, name: ServiceName) -> ServiceStatus:
    return next(service for service in services.status() if service.name == name)


def flow_states(url: str) -> list[str]:
    rows = httpx.post(f"{url}/api/flow_runs/filter", json={}, timeout=30).json()
    return sorted(row["state"]["type"] for row in rows)


def owners(runs: list[FlowRun]) -> set[int]:
    """Process ids in process tags, which are `process:HOST/PID/CREATED`."""
    tags = [tag for run in runs for tag in run.tags if tag.startswith("process:")]
    return {int(tag.split("/")[1]) for tag in tags}


def unfinished_tasks(api: PrefectApi) -> list[TaskRun]:
    return api.unfinished_task_runs([run.id for run in api.unfinished_flow_runs()])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("services"))
    yield home
    Services(home).stop_all()


@pytest.fixture(scope="module")
def url(home: Home) -> str:
    """URL of a Prefect server whose starter was killed with its whole process tree and group."""
    starter = python(STARTER, home, OVERNIGHT_PREFECT_PORT=str(free_port()))
    url = printed_line(starter)
    tree = [psutil.Process(starter.pid), *psutil.Process(starter.pid).children(recursive=True)]
    os.killpg(starter.pid, signal.SIGKILL)
    for member in tree:
        member.kill()
    starter.wait()
    return url


@pytest.mark.slow
@pytest.mark.services
def test_prefect_survives_its_starter_and_is_found_again(home: Home, url: str) -> None:
    services = Services(home)
    before = status(services, "prefect")
    reach = {"PREFECT_API_URL": f"{url}/api"}
    assert before == ServiceStatus("prefect", url, before.pid, "up", reach)
    assert services.ensure_prefect() == url
    with pytest.raises(ServiceError, match=f"prefect runs at {url}"):
        services.ensure_prefect(port=free_port())
    assert status(services, "prefect") == before
    assert before.pid not in {child.pid for child in psutil.Process().children(recursive=True)}
    assert (home.prefect / "prefect.db").exists()


@pytest.mark.slow
@pytest.mark.services
def test_only_the_runs_of_a_killed_process_become_crashed(home: Home, url: str) -> None:
    killed, living = python(FLOW, home), python(FLOW, home)
    try:
        assert [printed_line(killed), printed_line(living)] == ["working", "working"]
        api = PrefectApi(url)
        # Two a process: the step, and the one that stands for the inner flow.
        wait_until(lambda: len(unfinished_tasks(api)) == 4, 30, "the task runs")
        assert crashes.mark_crashed(api, nights=False) == []
        killed.kill()
        killed.wait()
        assert crashes.mark_crashed(api, nights=True) == []  # those are the worker's
        assert len(crashes.mark_crashed(api, nights=False)) == 1
        assert flow_states(url) == ["CRASHED", "CRASHED", "RUNNING", "RUNNING"]
        assert owners(api.unfinished_flow_runs()) == {living.pid}
        assert len(unfinished_tasks(api)) == 2
    finally:
        stop_tree(killed.pid)
        stop_tree(living.pid)


@pytest.mark.slow
@pytest.mark.services
def test_a_killed_server_is_started_anew_on_the_same_database(home: Home, url: str) -> None:
    services = Services(home)
    old = {
        "name": "Overnight: heartbeat missed",
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "expect": ["prefect.flow-run.heartbeat"],
            "within": 90,
        },
        "actions": [{"type": "do-nothing"}],
    }
    httpx.post(f"{url}/api/automations/", json=old, timeout=30).raise_for_status()
    runs = len(flow_states(url))
    pid = status(services, "prefect").pid
    assert pid is not None
    psutil.Process(pid).kill()
    wait_until(lambda: status(services, "prefect").state == "dead", 10, "the server's death")

    port = int(url.rsplit(":", 1)[1])
    assert services.ensure_prefect(port) == url
    assert status(services, "prefect").pid != pid
    assert PrefectApi(url).automations() == []  # earlier ones took living flows for crashed
    assert len(flow_states(url)) == runs
    # What a killed flow left behind is cleaned up with it.
    assert set(flow_states(url)) == {"CRASHED"}


@pytest.mark.slow
@pytest.mark.services
def test_mlflow_starts_without_waiting_and_everything_stops(home: Home, url: str) -> None:
    services = Services(home)
    mlflow = services.ensure_mlflow(port=free_port())
    assert status(services, "mlflow").state == "starting"
    assert services.ensure_mlflow(wait=True) == mlflow
    assert status(services, "mlflow").state == "up"
    found = httpx.post(f"{mlflow}/api/2.0/mlflow/experiments/search", json={"max_results": 9}, timeout=60)
    assert found.json()["experiments"][0]["artifact_location"].startswith(home.mlflow.as_uri())
    assert (home.mlflow / "mlflow.db").exists()

    services.stop_all()
    assert {service.state for service in services.status()} == {"absent"}
    assert all(port_is_free(int(each.rsplit(":", 1)[1])) for each in (url, mlflow))
    services.stop_all()


@pytest.mark.slow
@pytest.mark.services
def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prefect.write_text("not a folder")
    with pytest.raises(
        ServiceError, match=r"prefect ended while starting; its log: .*unable to open database file"
    ) as caught:
        Services(home).ensure_prefect(port=free_port())
    assert "\n" not in str(caught.value)
    assert status(Services(home), "prefect").state == "dead"


@pytest.mark.parametrize("service", ["prefect", "mlflow"])
def test_a_taken_port_is_one_line_that_names_the_way_out(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv(f"OVERNIGHT_{service.upper()}_PORT", str(port))
        ensure = getattr(Services(Home(tmp_path)), f"ensure_{service}")
        with pytest.raises(PortTakenError) as caught:
            ensure()
    assert str(caught.value) == (
        f"port {port} is taken by another program: "
        f"set OVERNIGHT_{service.upper()}_PORT (or --{service}-port) to a free one, or to none"
    )
    assert {each.state for each in Services(Home(tmp_path)).status()} == {"absent"}


def test_a_port_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVERNIGHT_PREFECT_PORT", "http")
    with pytest.raises(ServiceError, match="OVERNIGHT_PREFECT_PORT is 'http': set it to a port number"):
        Services(Home(tmp_path)).ensure_prefect()


def test_a_recycled_pid_is_neither_trusted_nor_killed(tmp_path: Path) -> None:
    bystander = psutil.Popen(["sleep", "60"])
    recycled = ProcessRef(pid=bystander.pid, created=bystander.create_time() - 1000)
    services = Services(Home(tmp_path))
    ServiceState(tmp_path).put("mlflow", ServiceRecord(process=recycled, url="http://127.0.0.1:1"))
    try:
        assert status(services, "mlflow") == ServiceStatus("mlflow", "http://127.0.0.1:1", None, "dead")
        services.stop_all()
        assert status(services, "mlflow").state == "absent"
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "services.json").write_text("{")
    with pytest.raises(ServiceError, match=r"services\.json is damaged"):
        Services(Home(tmp_path)).status()


def test_tending_without_a_server_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="overnight up"):
        Services(Home(tmp_path)).tend_nights()
