"""Quantised weights, deltas and a store on S3 at once, and a machine that loses all its copies."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open

from configs.weights import TOLERANCES
from infra.home import Home
from tests.support.command import Overnight
from tests.support.s3 import ENVIRONMENT, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(600)]
SETTINGS = (
    "loop.steps=1",
    "publish.transport=delta",
    "evaluation={problems: 20, samples: 1, at_start: false}",
)


@pytest.fixture
def remote(overnight: Overnight) -> Overnight:
    """The command with credentials for S3."""
    return replace(overnight, environment={**overnight.environment, **ENVIRONMENT})


def test_a_quantised_run_goes_on_from_what_is_on_s3(remote: Overnight, s3: S3Server, tmp_path: Path) -> None:
    store = f"store={s3.config().model_dump_json()}"
    remote.run_config("tiny-fp8-cpu.yaml", "remote", *SETTINGS, store)
    before = remote.json("ledger", "remote")
    copies = Home(remote.home).s3
    assert list(copies.rglob("*.safetensors"))
    shutil.rmtree(copies)
    remote.json("resume", "remote", "--set", "loop.steps=2")
    ledger = remote.json("ledger", "remote")

    assert not (remote.home / "runs" / "remote").exists()
    assert not (Home(remote.home).mirror / "remote").exists()
    assert [record["version"] for record in ledger] == [0, 1, 2]
    assert [record["hash"] for record in ledger[:2]] == [record["hash"] for record in before]
    for record in ledger:
        assert (record["format"], record["transport"]) == ("fp8_channel", "delta")
        assert record["engines"] == {"engine-0": record["hash"]}
        assert 1e-4 < record["probe_abs_diff_max"] <= TOLERANCES["fp8_channel"]
    assert 1e-4 < ledger[1]["divergence"] < 0.1
    assert ledger[2]["divergence"] is None
    first, second, _ = ledger
    assert second["sent_bytes"] < 0.7 * second["bytes"] < first["bytes"] < first["sent_bytes"]

    remote("export", "remote@2", str(tmp_path / "exported"))
    with safe_open(tmp_path / "exported" / "model.safetensors", "pt") as exported:
        assert "model.norm.weight" in exported.keys()  # noqa: SIM118
