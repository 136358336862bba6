"""prefect.yaml deploys what configs/tiny-cpu.yaml says and `overnight deploy` registers."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.loading import load_config
from configs.run import RunConfig
from flows.nightly import nightly_rl
from infra.services import WORK_POOL

ROOT = Path(__file__).parents[3]


@pytest.fixture
def deployment() -> dict[str, Any]:
    """Its only deployment."""
    (deployment,) = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    return deployment


def test_its_configuration_is_the_presets(
    deployment: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # where its pull step sends the worker
    preset = load_config(ROOT / "configs" / "tiny-cpu.yaml")
    assert RunConfig.model_validate(deployment["parameters"]["config"]) == preset
    assert deployment["name"] == preset.name


def test_it_runs_the_nightly_flow_one_night_at_a_time_on_the_worker_that_up_starts(
    deployment: dict[str, Any],
) -> None:
    module, _, name = deployment["entrypoint"].rpartition(".")
    assert getattr(importlib.import_module(module), name) is nightly_rl
    assert "concurrency_limit" not in deployment  # the worker has nights take turns
    assert deployment["work_pool"]["name"] == WORK_POOL
