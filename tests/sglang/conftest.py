"""These tests start SGLang's real servers: `make test-sglang` asks for them."""

from collections.abc import Iterator

import pytest

from tests.support.command import Overnight, overnight_in


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "sglang" not in config.getoption("--engines").split(","):
        for item in items:
            if "tests/sglang" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason="needs SGLang: make test-sglang"))


@pytest.fixture(scope="session")
def overnight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """A state folder of its own, whose servers stay up between the tests."""
    with overnight_in(tmp_path_factory.mktemp("home")) as overnight:
        yield overnight
