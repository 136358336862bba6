"""Prefect's database locked for longer than its server waits for it: a completed flow stays Completed."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from infra.home import Home
from infra.process import free_port
from infra.services import Services, crashes
from infra.services.prefect_api import PrefectApi
from infra.services.programs import DATABASE_PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.chaos, pytest.mark.timeout(500)]

LOCKED_S = DATABASE_PATIENCE_S + 15
FLOW = """
import sys, time
from prefect import flow, task

@task
def step(number):
    time.sleep(1)

@flow
def night():
    for number in range(40):
        step(number)

print("begins", flush=True)
night()
"""


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    yield (services := Services(Home(tmp_path)))
    services.stop_all()


@pytest.mark.parametrize("begins_s", [27.0, 38.0], ids=["in mid-flow", "when it ends"])
def test_a_flow_that_completes_is_completed(begins_s: float, services: Services, tmp_path: Path) -> None:
    url = services.ensure_prefect(free_port())
    environment = {**os.environ, **services.client_environment(url)}
    night = subprocess.Popen(
        [sys.executable, "-c", FLOW],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert night.stdout is not None and night.stdout.readline() == "begins\n"
    time.sleep(begins_s)
    with closing(sqlite3.connect(tmp_path / "prefect" / "prefect.db", timeout=30)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert night.poll() is None  # the lock strikes a flow that is going
        time.sleep(LOCKED_S)
        connection.rollback()
    assert night.wait(timeout=200) == 0
    for _ in range(3):
        crashes.mark_crashed(PrefectApi(url), nights=False)
        (run,) = httpx.post(f"{url}/api/flow_runs/filter", json={}, timeout=60).json()
        assert run["state_name"] == "Completed"
        time.sleep(10)
