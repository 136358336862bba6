"""What engines want around tensors that come one bucket after another."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from infra.engines.client import EngineError
from tasks.fleet.engines import Engine


@contextmanager
def update_session(engines: list[Engine]) -> Iterator[None]:
    """Open an update on every engine, and close it however the transfer ends: an open one bars the next."""
    try:
        for engine in engines:
            engine.client.begin_update()
        yield
    finally:
        for engine in engines:
            with contextlib.suppress(EngineError):  # the hashes tell what an engine holds
                engine.client.end_update()
