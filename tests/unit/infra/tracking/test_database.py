"""MLflow's database is there whole or not at all, whenever its maker is killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from infra.tracking.database import ensure_database

MAKE = "import sys; from infra.tracking.database import ensure_database; ensure_database(*sys.argv[1:])"


def usable(uri: str) -> bool:
    return MlflowClient(uri).create_experiment("another") is not None


def make(uri: str, artifacts: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", MAKE, uri, artifacts.as_uri()])


@pytest.mark.slow
@pytest.mark.chaos
def test_a_maker_that_is_killed_on_the_way_leaves_none_and_the_next_makes_it(tmp_path: Path) -> None:
    partial, file = tmp_path / "mlflow.partial", tmp_path / "mlflow.db"
    maker = make(f"sqlite:///{file}", tmp_path)
    while not partial.exists() or partial.stat().st_size < 50_000:  # some tables are there
        assert maker.poll() is None
        time.sleep(0.005)
    maker.send_signal(signal.SIGKILL)
    assert maker.wait(timeout=10) == -signal.SIGKILL
    assert not file.exists()
    ensure_database(f"sqlite:///{file}", tmp_path.as_uri())
    assert usable(f"sqlite:///{file}")


@pytest.mark.slow
def test_processes_that_make_it_at_once_make_one(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    makers = [make(uri, tmp_path) for _ in range(2)]
    assert [maker.wait(timeout=120) for maker in makers] == [0, 0]
    assert usable(uri)
