"""How tensors travel to the engines: loaded from an exported folder, or broadcast by the trainer."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from tasks.cluster.engines import Engine
from tasks.weights.staging import StagedVersion

Transfer: TypeAlias = Callable[[list[Engine], StagedVersion], None]
"""Puts the tensors of a staged version into every engine; the engines are paused meanwhile."""


def from_disk(engines: list[Engine], staged: StagedVersion) -> None:
    """Every engine loads the exported folder, all at once."""
    with ThreadPoolExecutor(max_workers=len(engines)) as pool:
        list(pool.map(lambda engine: engine.client.update_from_disk(staged.folder), engines))
