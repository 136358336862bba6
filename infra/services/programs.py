"""Command line and environment of each server."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from infra.home import Home
from infra.process import LOOPBACK
from infra.services.foreign import MlflowPlace

DATABASE_PATIENCE_S = 60
"""How long Prefect's server waits for sqlite's one writer: better than "database is locked" when busy."""
WORK_POOL = "overnight"
"""The process work pool that deployments run on."""


_PREFECT_DATABASE = ("PREFECT_SERVER_DATABASE_", "PREFECT_API_DATABASE_")
"""How the user names a database for our Prefect server, such as PREFECT_SERVER_DATABASE_CONNECTION_URL."""


def prefect_command(port: int, log: Path) -> list[str]:
    """Prefect's API, UI and background services in one process."""
    return _served(log, "prefect", "server", "start", "--host", LOOPBACK, "--port", str(port))


def prefect_environment(home: Home, url: str) -> dict[str, str]:
    """A server on sqlite in `home`, or on a database that the user names, without other Prefect settings."""
    return {
        "PREFECT_SERVER_DATABASE_TIMEOUT": str(DATABASE_PATIENCE_S),
        **_without("PREFECT_", kept=_PREFECT_DATABASE),
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_PROFILE": "ephemeral",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        # As a path, so that pages ask the server that they came from, through a forwarded port as well.
        "PREFECT_SERVER_UI_API_URL": "/api",
        "PREFECT_UI_URL": url,  # of links in notifications
        "DO_NOT_TRACK": "1",
    }


def mlflow_command(port: int, log: Path) -> list[str]:
    """MLflow's API and UI on the database that runs write to."""
    return _served(log, "infra.services.mlflow_server", "--port", str(port))


def mlflow_environment(place: MlflowPlace) -> dict[str, str]:
    """A server without usage reports and without the job runner; its database may have a password."""
    return {
        **_without("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"),
        "OVERNIGHT_MLFLOW_STORE": place.uri,
        "OVERNIGHT_MLFLOW_ARTIFACTS": place.artifacts or "",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "OMP_NUM_THREADS": "1",
    }


def worker_command(log: Path) -> list[str]:
    """The worker that starts scheduled runs as processes; it makes the work pool if there is none."""
    return _served(log, "flows.worker")


def worker_environment(client: Mapping[str, str], place: MlflowPlace) -> dict[str, str]:
    """What the worker needs, and the flow processes that inherit it; `client` is how Prefect is reached."""
    environment = {**_without("PREFECT_"), **client, "PREFECT_WORKER_QUERY_SECONDS": "5"}
    if "MLFLOW_TRACKING_URI" in environment:
        environment["MLFLOW_TRACKING_URI"] = place.uri
    return environment


def _served(log: Path, *module: str) -> list[str]:
    return [sys.executable, "-m", "infra.services.served", str(log), *module]


def _without(*prefixes: str, kept: tuple[str, ...] = ()) -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(prefixes) or name.startswith(kept)
    }
