"""A run's model lies in its store, under its content's name, whatever becomes of the folder it came from."""

import shutil
from pathlib import Path

import pytest

from configs.loading import override
from infra.home import Home
from infra.store.base import KeyMissingError
from tasks.model.source import ModelError
from tasks.model.stored import model_key, store_model, stored_model
from tasks.record.run import Run
from tests.support.engines import TINY_MODEL
from tests.support.s3 import S3Server


def of_model(run: Run, run_id: str, model: Path) -> Run:
    """Another run of the store."""
    return Run(id=run_id, config=override(run.config, [f"model.path={model}"]), home=run.home)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return shutil.copytree(TINY_MODEL, tmp_path / "own")


def test_a_run_keeps_its_model(run: Run, model: Path) -> None:
    own = of_model(run, "own", model)
    with pytest.raises(KeyMissingError):
        model_key(own)
    key = store_model(own)
    shutil.rmtree(model)
    assert store_model(own) == model_key(own) == key
    assert contents(stored_model(own)) == contents(TINY_MODEL)
    with pytest.raises(ModelError, match=r"model\.path"):
        store_model(of_model(run, "other", model))


def test_runs_of_one_model_share_it_and_one_of_another_does_not(run: Run, model: Path) -> None:
    first, second = (store_model(of_model(run, name, model)) for name in ("first", "second"))
    assert first == second and run.store.list_folders("models") == [first]
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    third = store_model(of_model(run, "third", model))
    assert third != first
    assert contents(run.store.local(first)) == contents(TINY_MODEL)


@pytest.mark.slow
def test_another_machine_fetches_it(run: Run, model: Path, s3: S3Server, tmp_path: Path) -> None:
    settings = [f"model.path={model}", f"store={s3.config().model_dump_json()}"]
    here = Run(id="far", config=override(run.config, settings), home=run.home)
    store_model(here)
    there = Run(id="far", config=here.config, home=Home(tmp_path / "there"))
    shutil.rmtree(model)
    assert contents(stored_model(there)) == contents(TINY_MODEL)
    assert stored_model(there).is_relative_to(there.home.s3)
