"""What must be true before anything starts; each problem is a line that names the field to change."""

import shutil

from configs.errors import UserError
from configs.run import RunConfig
from infra.home import Home
from infra.process import port_is_free
from infra.store import open_store
from tasks.models import prepare_model
from tasks.problems import build_source

_MIN_FREE_BYTES = 1 << 30


class PreflightError(UserError):
    """The run could not work as configured."""


def preflight(config: RunConfig, home: Home) -> None:
    """Check model, problems, store, ports and disk; raises the first problem and leaves nothing behind."""
    prepare_model(config.model, home)
    build_source(config.problems)
    store = open_store(config.store, home)
    store.check_writable()
    free = shutil.disk_usage(store.folder(".")).free
    if free < _MIN_FREE_BYTES:
        raise PreflightError(
            f"only {free >> 20} MiB free for the run store: free some or set store.path elsewhere"
        )
    if config.engine.port is not None:
        for port in range(config.engine.port, config.engine.port + config.engine.count):
            if not port_is_free(port):
                raise PreflightError(
                    f"engine.port {port} is taken: choose another, or none to get a free one"
                )
