"""How tensors travel to the engines: loaded from an exported folder, or broadcast by the trainer."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from tasks.cluster.engines import Engine
from tasks.training.group import TrainerGroup
from tasks.weights.staging import StagedVersion

if TYPE_CHECKING:
    from tasks.weights.bridge.buckets import TensorSpec

Transfer: TypeAlias = Callable[[list[Engine], StagedVersion], None]
"""Puts the tensors of a staged version into every engine; the engines are paused meanwhile."""


def from_disk(engines: list[Engine], staged: StagedVersion) -> None:
    """Every engine loads the exported folder, all at once."""
    with ThreadPoolExecutor(max_workers=len(engines)) as pool:
        list(pool.map(lambda engine: engine.client.update_from_disk(staged.folder), engines))


def from_trainer(trainer: TrainerGroup, backend: str) -> Transfer:
    """The trainer, which must hold the version, broadcasts it to all engines bucket by bucket."""

    def transfer(engines: list[Engine], _staged: StagedVersion) -> None:
        with (
            ThreadPoolExecutor(max_workers=len(engines)) as pool,
            _update_group(engines, trainer, backend, pool) as group,
        ):
            for engine in engines:
                engine.client.begin_update()
            for number, specs in enumerate(trainer.buckets()):
                receiving = [pool.submit(_receive, engine, specs, group) for engine in engines]
                trainer.broadcast_bucket(number)
                for call in receiving:
                    call.result()
            for engine in engines:
                engine.client.end_update()

    return transfer


@contextmanager
def _update_group(
    engines: list[Engine], trainer: TrainerGroup, backend: str, pool: Executor
) -> Iterator[str]:
    """Name of a process group of the trainer at rank 0 and the engines after it.

    The name is new each time: an engine may still be a member of a group whose trainer died.
    """
    group = f"weights-{secrets.token_hex(4)}"
    address, port = trainer.meeting_point()
    size = len(engines) + 1
    joining = [
        pool.submit(engine.client.init_update_group, address, port, rank, size, group, backend)
        for rank, engine in enumerate(engines, start=1)
    ]
    trainer.open_update_group(address, port, size, group)
    for call in joining:
        call.result()
    try:
        yield group
    finally:
        trainer.close_update_group()
        for engine in engines:
            engine.client.destroy_update_group(group)


def _receive(engine: Engine, specs: Sequence["TensorSpec"], group: str) -> None:
    names, dtypes, shapes = zip(*specs, strict=True)
    engine.client.update_from_group(names, dtypes, shapes, group)
