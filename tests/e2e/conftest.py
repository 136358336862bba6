"""One real run of the tiny model, shared by all the tests that look at what it left behind."""

import pytest

from tests.support.command import Overnight, overnight_in

STEPS = 4
SMALL = (f"loop.steps={STEPS}", "evaluation.problems=40", "evaluation.samples=2")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Overnight:
    """A state folder in which run `reference` of configs/tiny-cpu.yaml went through, servers still up."""
    with overnight_in(tmp_path_factory.mktemp("home")) as overnight:
        overnight.run_config("tiny-cpu.yaml", "reference", *SMALL)
        yield overnight
