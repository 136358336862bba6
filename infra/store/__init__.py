"""Stores for runs. `open_store` builds the one a config names."""

from dataclasses import dataclass
from pathlib import Path

from configs.store import S3StoreConfig, StoreConfig
from infra.home import Home
from infra.store.base import Store
from infra.store.local import LocalStore


def open_store(config: StoreConfig, home: Home) -> Store:
    """The store of a configuration; the default is `runs` under the state folder."""
    if isinstance(config, S3StoreConfig):
        from infra.store.s3 import S3Store  # boto3 is for those who use it

        return S3Store(config, home.s3)
    return LocalStore(config.path or home.runs)


@dataclass(frozen=True)
class StoredFolder:
    """A folder of a store, to be had on whatever machine it is asked for."""

    store: StoreConfig
    home: Home
    """The state folder, which each machine has at this path."""
    key: str

    def local(self) -> Path:
        """The folder on this machine, fetched where it is not here; KeyMissingError, StoreError."""
        return open_store(self.store, self.home).local(self.key)
