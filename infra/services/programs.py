"""Command line and environment of each server."""

import os
import sys

from infra.home import Home
from infra.process import LOOPBACK
from infra.services.environment import client_environment

WORK_POOL = "overnight"
"""The process work pool that deployments run on."""


def prefect_command(port: int) -> list[str]:
    """Prefect's API, UI and background services in one process."""
    return [sys.executable, "-m", "prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]


def prefect_environment(home: Home) -> dict[str, str]:
    """A server on sqlite in `home`, whatever the caller's own Prefect settings are."""
    return {
        **_without("PREFECT_"),
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        # Waiting for sqlite's one writer beats "database is locked" on a busy machine.
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
        "DO_NOT_TRACK": "1",
    }


def mlflow_command(home: Home, port: int) -> list[str]:
    """MLflow's API and UI on the database that runs write to."""
    return [
        *(sys.executable, "-m", "infra.services.mlflow_server"),
        *("--store", home.mlflow_uri),
        *("--artifacts", str(home.mlflow / "artifacts")),
        *("--port", str(port)),
    ]


def mlflow_environment() -> dict[str, str]:
    """A server without usage reports and without the job runner."""
    return {
        **_without("MLFLOW_"),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "OMP_NUM_THREADS": "1",
    }


def worker_command() -> list[str]:
    """The worker that starts scheduled runs as processes; it makes the work pool if there is none."""
    return [sys.executable, "-m", "infra.services.worker"]


def worker_environment(home: Home, prefect_url: str) -> dict[str, str]:
    """What the worker needs, and the flow processes that inherit it."""
    polling = {"PREFECT_WORKER_QUERY_SECONDS": "5"}
    return {**_without("PREFECT_"), **client_environment(home, prefect_url), **polling}


def _without(prefix: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}
