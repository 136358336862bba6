"""Stores for runs. `open_store` builds the one a config names."""

from configs.run import StoreConfig
from infra.home import Home
from infra.store.base import Store
from infra.store.local import LocalStore


def open_store(config: StoreConfig, home: Home) -> Store:
    """The store of a configuration; the default is `runs` under the state folder."""
    return LocalStore(config.path or home.runs)
