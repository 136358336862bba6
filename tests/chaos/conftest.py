"""The run that nothing happened to, by which the others are judged."""

from collections.abc import Iterator

import pytest

from tests.support.command import Overnight, overnight_in

STEPS = 12
SETTINGS = ("trainer.checkpoint_every=3", "evaluation.problems=20", "evaluation.samples=1")
"""Of every run here, besides its number of steps."""


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """A state folder in which run `undisturbed` went through its steps, servers still up."""
    with overnight_in(tmp_path_factory.mktemp("home")) as overnight:
        overnight.run_config("tiny-cpu.yaml", "undisturbed", f"loop.steps={STEPS}", *SETTINGS)
        yield overnight
