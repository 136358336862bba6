"""Prefect and MLflow servers as users start them, which Overnight did not."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from infra.process import LOOPBACK, free_port, log_tail, spawn, stop_tree, wait_until

_START_TIMEOUT_S = 200


@contextmanager
def prefect_server(folder: Path, **variables: str) -> Iterator[str]:
    """URL of a Prefect server of `prefect server start`."""
    port = free_port()
    command = ["prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
    variables = {"PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", **variables}
    with _running(command, variables, folder / "server.log", port, "/api/health") as url:
        yield url


@contextmanager
def mlflow_server(folder: Path, store: str) -> Iterator[str]:
    """URL of an MLflow server of `mlflow server` on a database, its artifacts proxied."""
    port = free_port()
    command = ["mlflow", "server", "--host", LOOPBACK, "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store, "--artifacts-destination", str(folder / "artifacts")]
    with _running(command, {}, folder / "server.log", port, "/health") as url:
        yield url


@contextmanager
def _running(
    command: list[str], variables: Mapping[str, str], log: Path, port: int, health: str
) -> Iterator[str]:
    server = spawn([sys.executable, "-m", *command], log, dict(variables))

    url = f"http://{LOOPBACK}:{port}"

    def healthy() -> bool:
        assert server.poll() is None, log_tail(log)
        try:
            return httpx.get(url + health, timeout=5).is_success
        except httpx.HTTPError:
            return False

    try:
        wait_until(healthy, _START_TIMEOUT_S, command[0])
        yield url
    finally:
        stop_tree(server.pid)
        server.wait()
