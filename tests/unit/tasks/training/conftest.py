"""A tiny model, and single-process trainers on it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import MODELS, save_model
from tests.support.training import LooseRank, single_trainer


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Qwen3 model."""
    return save_model(MODELS["qwen3"], tmp_path_factory.mktemp("qwen3"))


@pytest.fixture
def start_trainer(model: Path, tmp_path: Path) -> Iterator[Callable[..., LooseRank]]:
    """Starts a single-process trainer with the model loaded; a second call ends the first trainer, whose
    store it shares."""
    with ExitStack() as running:

        def start(**sections: dict[str, Any]) -> LooseRank:
            running.close()
            return running.enter_context(single_trainer(model, tmp_path / "home", **sections))

        yield start
