"""A run and a cron night on the user's own Prefect and MLflow, which Overnight uses and never stops."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from prefect.client.orchestration import SyncPrefectClient

from infra.process import free_port, wait_until
from tests.support import postgres
from tests.support.command import CONFIGS, Overnight, overnight_in, run_arguments
from tests.support.servers import mlflow_server, prefect_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services,
    pytest.mark.timeout(900),
    pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed"),
]

LOGIN = "operator:a-secret"
SMALL = ("loop.steps=2", "evaluation.problems=8", "evaluation.at_start=false")


@dataclass(frozen=True)
class Foreign:
    prefect: str
    mlflow: str

    def flow_runs(self) -> list[dict[str, Any]]:
        with SyncPrefectClient(f"{self.prefect}/api", auth_string=LOGIN) as client:
            return client.request("POST", "/flow_runs/filter", json={}).json()


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    """Prefect with a login and CSRF tokens, MLflow on PostgreSQL."""
    folder = tmp_path_factory.mktemp("foreign")
    guarded = {
        "PREFECT_SERVER_API_AUTH_STRING": LOGIN,
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    }
    with (
        postgres.running_postgres() as store,
        mlflow_server(folder / "mlflow", store) as mlflow,
        prefect_server(folder / "prefect", **guarded) as prefect,
    ):
        yield Foreign(prefect, mlflow)


@pytest.fixture(scope="module")
def operator(foreign: Foreign, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """The command with both servers named in its environment."""
    variables = {
        "PREFECT_API_URL": f"{foreign.prefect}/api",
        "PREFECT_API_AUTH_STRING": LOGIN,
        "MLFLOW_TRACKING_URI": foreign.mlflow,
    }
    with overnight_in(tmp_path_factory.mktemp("home"), **variables) as overnight:
        yield overnight


def test_a_run_is_on_the_users_servers_and_none_is_started(operator: Overnight, foreign: Foreign) -> None:
    printed = operator("run", *run_arguments("tiny-cpu.yaml", "mine", *SMALL), timeout_s=300).stdout
    assert foreign.prefect in printed and foreign.mlflow in printed
    assert {run["state_name"] for run in foreign.flow_runs()} == {"Completed"}
    client = MlflowClient(foreign.mlflow)
    experiment = client.get_experiment_by_name("tiny-cpu")
    assert experiment is not None and experiment.artifact_location.startswith("mlflow-artifacts:/")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.data.tags["overnight.run_id"] == "mine"
    assert client.list_artifacts(run.info.run_id, "plots")
    assert client.get_model_version_by_alias("tiny-cpu", "best").run_id == run.info.run_id
    assert not (operator.home / "prefect").exists() and not (operator.home / "mlflow").exists()


def test_a_cron_night_is_there_too_and_down_leaves_the_servers(operator: Overnight, foreign: Foreign) -> None:
    overrides = [argument for text in SMALL for argument in ("--set", text)]
    before = {run["id"] for run in foreign.flow_runs()}
    operator("deploy", str(CONFIGS / "tiny-cpu.yaml"), "--cron", "* * * * *", *overrides)

    def nights() -> list[str]:
        return [
            run["state_name"]
            for run in foreign.flow_runs()
            if run["id"] not in before and run["auto_scheduled"]
        ]

    deadline = time.monotonic() + 400
    while "Completed" not in (states := nights()):
        assert time.monotonic() < deadline and not {"Failed", "Crashed"} & set(states), states
        time.sleep(2)
    shown = {row["name"]: row for row in operator.json("status")["services"]}
    assert {name: row["state"] for name, row in shown.items()} == {
        "prefect": "foreign",
        "mlflow": "foreign",
        "worker": "up",
    }
    assert shown["prefect"]["url"] == foreign.prefect and shown["mlflow"]["url"] == foreign.mlflow
    operator("down")
    assert MlflowClient(foreign.mlflow).search_experiments() and foreign.flow_runs()
    assert {row["name"]: row["state"] for row in operator.json("status")["services"]}["worker"] == "absent"


@pytest.mark.parametrize(
    "variables",
    [
        {"PREFECT_API_URL": "http://127.0.0.1:{port}/api"},
        {"MLFLOW_TRACKING_URI": "http://127.0.0.1:{port}"},
        {"MLFLOW_TRACKING_URI": "postgresql://me:a-secret@127.0.0.1:{port}/x"},
    ],
)
def test_one_that_cannot_be_reached_is_a_line_before_anything_starts(
    variables: dict[str, str], tmp_path: Path
) -> None:
    port = free_port()
    wanted = {name: text.format(port=port) for name, text in variables.items()}
    with overnight_in(tmp_path, **wanted) as overnight:
        for arguments in (
            ("up",),
            ("run", str(CONFIGS / "tiny-cpu.yaml")),
            ("deploy", str(CONFIGS / "tiny-cpu.yaml")),
        ):
            (line,) = overnight(*arguments, exit_code=2, timeout_s=100).stderr.splitlines()
            assert line.startswith("error: ") and str(port) in line and "a-secret" not in line
        assert not (tmp_path / "services.json").exists()


def test_refused_credentials_are_a_line(foreign: Foreign, tmp_path: Path) -> None:
    with overnight_in(tmp_path, PREFECT_API_URL=f"{foreign.prefect}/api") as overnight:
        line = overnight("up", exit_code=2, timeout_s=100).stderr
        assert "refuses the credentials: set PREFECT_API_KEY or PREFECT_API_AUTH_STRING" in line


def test_our_own_mlflow_shows_a_database_of_the_user(tmp_path: Path) -> None:
    with postgres.running_postgres() as store, overnight_in(tmp_path, MLFLOW_TRACKING_URI=store) as overnight:
        overnight("up", timeout_s=300)
        client = MlflowClient(overnight.json("status")["environment"]["MLFLOW_TRACKING_URI"])
        wait_until(lambda: _up(overnight), 120, "MLflow")
        client.create_experiment("of our server")
        assert MlflowClient(store).get_experiment_by_name("of our server") is not None
        assert "a-secret" not in (tmp_path / "services.json").read_text()


def _up(overnight: Overnight) -> bool:
    return all(row["state"] == "up" for row in overnight.json("status")["services"])
