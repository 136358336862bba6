"""MLflow's database, made for the first time by a process that is killed on the way, at twelve moments."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from infra.tracking.database import ensure_database

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

MOMENTS = 12
MAKE = """
import sys
from infra.tracking.database import ensure_database
print("imported", flush=True)
ensure_database(*sys.argv[1:])
"""


def maker(folder: Path) -> "subprocess.Popen[str]":
    """A process that is about to make the database."""
    arguments = [f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()]
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "imported\n"
    return process


@pytest.fixture(scope="module")
def seconds(tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long it takes to make one here and now."""
    process = maker(tmp_path_factory.mktemp("whole"))
    began = time.monotonic()
    assert process.wait(timeout=120) == 0
    return time.monotonic() - began


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_the_next_process_makes_it(moment: int, seconds: float, tmp_path: Path) -> None:
    process = maker(tmp_path)
    time.sleep(seconds * moment / MOMENTS)
    process.kill()
    killed = process.wait(timeout=10) == -signal.SIGKILL
    assert killed or moment > MOMENTS // 2  # a late one may find it done
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    ensure_database(uri, (tmp_path / "artifacts").as_uri())
    run = MlflowClient(uri).create_run(MlflowClient(uri).create_experiment("first"))
    assert run.info.artifact_uri
