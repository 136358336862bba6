"""These tests start SGLang's real servers: `make test-sglang` asks for them."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "sglang" not in config.getoption("--engines").split(","):
        for item in items:
            if "tests/sglang" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason="needs SGLang: make test-sglang"))
