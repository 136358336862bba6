"""What tests of all kinds share: a real run of the tiny model to judge by, and an S3 server."""

import os
from collections.abc import Iterator

import pytest

from tests.support.command import REFERENCE_STEPS, Overnight, forget_users_servers, overnight_in
from tests.support.engines import SGLANG_PYTHON
from tests.support.s3 import ENVIRONMENT, S3Server, running_s3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write golden files anew")
    parser.addoption(
        "--engines",
        default="embedded",
        help="kinds of engine that the conformance suite examines: embedded, sglang or embedded,sglang",
    )


def pytest_configure(config: pytest.Config) -> None:
    forget_users_servers(os.environ)
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
def overnight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """A state folder for runs of any test; its servers stay up between them."""
    with overnight_in(tmp_path_factory.mktemp("home")) as overnight:
        yield overnight


@pytest.fixture(scope="session")
def finished(overnight: Overnight) -> Overnight:
    """The state folder, after run `reference` of configs/tiny-cpu.yaml went through in it."""
    overnight.run_config(
        "tiny-cpu.yaml",
        "reference",
        f"loop.steps={REFERENCE_STEPS}",
        "evaluation.problems=40",
        "evaluation.samples=2",
    )
    return overnight


@pytest.fixture(scope="session")
def reference_hashes(finished: Overnight) -> list[str]:
    """Content hash of every weight version of the undisturbed run."""
    return [record["hash"] for record in finished.json("ledger", "reference")]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with a bucket."""
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with its credentials in the environment and no others to be found."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return s3_server
