"""Stores of every kind, each of the test's own."""

from pathlib import Path

import pytest

from configs.store import LocalStoreConfig, StoreConfig


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.slow)])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> StoreConfig:
    """The configuration of an empty store."""
    if request.param == "s3":
        return request.getfixturevalue("s3").config()
    return LocalStoreConfig(path=tmp_path / "runs")
