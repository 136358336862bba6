"""Of a folder only the model is taken, into a run's store and into what is exported."""

import shutil
from pathlib import Path

import pytest

from configs.loading import override
from tasks.model.bridge.writer import copy_companions
from tasks.model.stored import store_model, stored_model
from tasks.record.run import Run
from tests.support.engines import TINY_MODEL

STRAY = (
    "optimizer.pt",
    "scheduler.bin",
    "training_args.bin",
    "README.md",
    "modeling_own.py",
    "trainer_state.json",
)


@pytest.fixture
def cluttered(tmp_path: Path) -> Path:
    """The tiny model in a folder that somebody trained in."""
    folder = shutil.copytree(TINY_MODEL, tmp_path / "cluttered")
    for name in (*STRAY, "checkpoint-5/optimizer.pt", ".git/config"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("stray")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def test_nothing_stray_is_copied_beside_weights(cluttered: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    copy_companions(cluttered, tmp_path / "target")
    model = {path.name for path in TINY_MODEL.iterdir()} - {"model.safetensors"}
    assert {path.name for path in (tmp_path / "target").iterdir()} == {*model, "chat_template.jinja"}


def test_nothing_stray_is_stored(run: Run, cluttered: Path) -> None:
    own = Run(id="own", config=override(run.config, [f"model.path={cluttered}"]), home=run.home)
    store_model(own)
    model = {path.name for path in TINY_MODEL.iterdir()}
    assert {path.name for path in stored_model(own).iterdir()} == {*model, "chat_template.jinja"}
