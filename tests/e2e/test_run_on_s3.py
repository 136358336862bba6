"""A run that is kept on S3, and goes on after its machine lost everything of it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open

from infra.home import Home
from tests.support.command import Overnight
from tests.support.s3 import ENVIRONMENT, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(600)]
EVALUATION = "evaluation={problems: 20, samples: 1, at_start: false}"


def test_a_run_goes_on_from_what_is_on_s3(tmp_path: Path, overnight: Overnight, s3: S3Server) -> None:
    overnight = replace(overnight, environment={**overnight.environment, **ENVIRONMENT})
    store = f"store={s3.config().model_dump_json()}"
    overnight.run_config("tiny-cpu.yaml", "remote", "loop.steps=1", EVALUATION, store)
    copies = Home(overnight.home).s3
    assert list(copies.rglob("*.safetensors")) and not (overnight.home / "runs" / "remote").exists()
    shutil.rmtree(copies)
    overnight.json("resume", "remote", "--set", "loop.steps=2")
    ledger = overnight.json("ledger", "remote")
    assert [record["version"] for record in ledger] == [0, 1, 2]
    assert [record["parent"] for record in ledger] == [None, 0, 1]
    assert [record["state"] for record in ledger] == ["retired", "retired", "published"]
    (restored,) = copies.rglob("checkpoints/000001")
    assert list(restored.iterdir())
    overnight("export", "remote@2", str(tmp_path / "exported"))
    with safe_open(tmp_path / "exported" / "model.safetensors", "pt") as exported:
        assert "model.norm.weight" in list(exported.keys())
