"""What Prefect says of a failed flow run: known errors in one line, bugs with their traceback."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from infra.home import Home
from infra.process import free_port, wait_until
from infra.services import Services

FAILING_RUNS = """
import ray
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from ray.exceptions import RayTaskError

import flows
from configs.errors import UserError
from infra.engines.errors import EngineRefused

@task(cache_policy=NO_CACHE)
def raising(error):
    raise error

@flow
def failing(error):
    raising(error)

def of_an_actor(error):
    try:
        raise error
    except Exception as raised:
        return RayTaskError("generate", "Traceback (most recent call last): in the actor", raised)

wrapped = of_an_actor(EngineRefused("engine 0 says no"))
for error in (UserError("set it higher"), wrapped, wrapped.as_instanceof_cause(), LookupError("a bug")):
    try:
        failing(error)
    except Exception:
        pass
"""


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    yield (services := Services(Home(tmp_path)))
    services.stop_all()


def errors_stored(url: str) -> list[str]:
    """Messages from level error on that Prefect's server has of all runs."""
    wanted = {"logs": {"level": {"ge_": 40}}, "limit": 200}
    answer = httpx.post(f"{url}/api/logs/filter", json=wanted, timeout=30).raise_for_status()
    return [each["message"] for each in answer.json()]


@pytest.mark.slow
@pytest.mark.services
def test_a_known_error_is_a_line_and_a_bug_has_its_traceback(services: Services) -> None:
    url = services.ensure_prefect(free_port())
    done = subprocess.run(
        [sys.executable, "-c", FAILING_RUNS],
        env={**os.environ, **services.client_environment(url)},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    wait_until(lambda: any("a bug" in message for message in errors_stored(url)), 30, "the stored log")
    stored = errors_stored(url)
    assert "UserError: set it higher" in stored
    assert "EngineRefused: engine 0 says no" in stored
    for said in (done.stderr, "\n".join(stored)):
        known, _, bug = said.partition("LookupError")
        assert "UserError: set it higher" in known and "EngineRefused: engine 0 says no" in known
        assert 'File "' not in known
        assert 'File "' in bug and "in raising" in bug
