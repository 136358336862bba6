"""Trainer ranks and an engine on a machine that has none of the driver's folders, with a store on S3."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from infra.home import Home
from infra.store import open_store
from tasks.record.manifest import Manifest
from tests.support.command import Overnight, overnight_in, run_arguments
from tests.support.elsewhere import running_elsewhere
from tests.support.engines import TINY_MODEL
from tests.support.s3 import ENVIRONMENT, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(600)]
SETTINGS = (
    "trainer.tensor_parallel=2",
    "trainer.checkpoint_every=1",
    "evaluation={problems: 20, samples: 1, at_start: false}",
)


@pytest.fixture
def driver(s3: S3Server, tmp_path: Path) -> Iterator[Overnight]:
    """The command, with credentials for S3 and a state folder of its own."""
    with overnight_in(tmp_path / "home") as overnight:
        yield replace(overnight, environment={**overnight.environment, **ENVIRONMENT})


def test_three_steps_a_resume_and_an_export(driver: Overnight, s3: S3Server, tmp_path: Path) -> None:
    model = shutil.copytree(TINY_MODEL, tmp_path / "model")
    driver.home.mkdir(exist_ok=True)
    marker = driver.home / "marker"
    marker.write_text("of the driver")
    config = s3.config()
    settings = (*SETTINGS, f"model.path={model}", f"store={config.model_dump_json()}")

    with running_elsewhere(tmp_path / "first.log", driver.home, model) as there:
        assert there.files() == [], "the node sees the driver's folders"
        at_work = driver.connected(there.environment)
        process = at_work.start("run", *run_arguments("tiny-cpu.yaml", "far", "loop.steps=3", *settings))
        store = open_store(config, Home(tmp_path / "reader"))
        while not store.exists("far/steps/000001/commit.json"):
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        process.kill()
        process.communicate()
        assert marker.exists() and str(marker) not in there.files()
        assert len(there.files("model.safetensors")) >= 3  # the model's and versions', of the node's own
    before = [record["hash"] for record in driver.json("ledger", "far")]
    assert 2 <= len(before) < 4

    with running_elsewhere(tmp_path / "second.log", driver.home, model) as there:
        assert there.files() == []
        driver.connected(there.environment).json("resume", "far")
        assert str(marker) not in there.files()
    ledger = driver.json("ledger", "far")
    assert [record["version"] for record in ledger] == [0, 1, 2, 3]
    assert [record["hash"] for record in ledger][: len(before)] == before
    for record in ledger:
        assert record["engines"] == {"engine-0": record["hash"]}
    copies = Home(driver.home).s3.rglob("weights/*/model.safetensors")
    assert list(copies) == [], "the driver needed the weights"

    driver("export", "far@3", str(tmp_path / "exported"))
    exported = Manifest.of(load_file(tmp_path / "exported" / "model.safetensors"))
    assert exported.hash == ledger[3]["hash"]
