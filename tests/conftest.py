"""One real run of the tiny model, by which the end-to-end and the chaos tests judge."""

from collections.abc import Iterator

import pytest

from tests.support.command import REFERENCE_STEPS, Overnight, overnight_in
from tests.support.engines import SGLANG_PYTHON


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write golden files anew")
    parser.addoption(
        "--engines",
        default="embedded",
        help="kinds of engine that the conformance suite examines: embedded, sglang or embedded,sglang",
    )


def pytest_configure(config: pytest.Config) -> None:
    kinds = set(config.getoption("--engines").split(","))
    if unknown := kinds - {"embedded", "sglang"}:
        raise pytest.UsageError(f"--engines {', '.join(sorted(unknown))}: give embedded, sglang or both")
    if "sglang" in kinds and not SGLANG_PYTHON.exists():
        raise pytest.UsageError(f"--engines sglang needs {SGLANG_PYTHON}: run `make sglang-env` first")


@pytest.fixture
def update_snapshots(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written anew."""
    return request.config.getoption("--update-snapshots")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """A state folder in which run `reference` of configs/tiny-cpu.yaml went through, servers still up."""
    with overnight_in(tmp_path_factory.mktemp("home")) as overnight:
        overnight.run_config(
            "tiny-cpu.yaml",
            "reference",
            f"loop.steps={REFERENCE_STEPS}",
            "evaluation.problems=40",
            "evaluation.samples=2",
        )
        yield overnight


@pytest.fixture(scope="session")
def reference_hashes(finished: Overnight) -> list[str]:
    """Content hash of every weight version of the undisturbed run."""
    return [record["hash"] for record in finished.json("ledger", "reference")]
