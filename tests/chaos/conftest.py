"""Where the runs that things happen to take place."""

from collections.abc import Iterator

import pytest

from tests.support.command import Overnight, overnight_in

SETTINGS = ("trainer.checkpoint_every=3", "evaluation.problems=20", "evaluation.samples=1")
"""Of every run here, besides its number of steps; the weights are not a function of them."""


@pytest.fixture(scope="session")
def overnight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """A state folder of its own, whose servers stay up between the tests."""
    with overnight_in(tmp_path_factory.mktemp("home")) as overnight:
        yield overnight
