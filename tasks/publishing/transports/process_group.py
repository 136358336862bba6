"""Through a process group: the trainer broadcasts the tensors to the engines."""

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from configs.transport import ProcessGroupTransport
from infra.engines.client import EngineError
from tasks.fleet.engines import Engine, Fleet
from tasks.publishing.transports.base import Transfer, Transport
from tasks.publishing.transports.disk import Loading
from tasks.publishing.transports.session import update_session
from tasks.publishing.transports.staged import StagedVersion
from tasks.record.weight_version import WeightVersion
from tasks.training.group import TrainerGroup, TrainerLost
from tasks.training.trainer import Trainer

if TYPE_CHECKING:
    from tasks.model.bridge.buckets import TensorSpec


@dataclass(frozen=True)
class ProcessGroup(Transport):
    """The trainer broadcasts what it holds; all else, and what it held when it is gone, goes by disk."""

    settings: ProcessGroupTransport

    def prepare(self, fleet: Fleet, weights: WeightVersion, held: bool) -> Transfer:
        """See Transport."""
        if held:
            with contextlib.suppress(TrainerLost):
                return Broadcast(TrainerGroup.connect(fleet.run), fleet.run.config.trainer.backend)
        return Loading(fleet)


@dataclass(frozen=True)
class Broadcast:
    """The trainer, which must hold the version, broadcasts it bucket by bucket."""

    trainer: Trainer
    backend: str
    name: str = "process_group"

    def transfer(self, engines: list[Engine], staged: StagedVersion) -> int:
        """See Transfer."""
        with (
            ThreadPoolExecutor(max_workers=len(engines)) as pool,
            self._group(engines, pool) as group,
            update_session(engines),
        ):
            for number, specs in enumerate(self.trainer.buckets()):
                receiving = [pool.submit(_receive, engine, specs, group) for engine in engines]
                self.trainer.broadcast_bucket(number)
                for call in receiving:
                    call.result()
        return staged.manifest.bytes * len(engines)

    @contextmanager
    def _group(self, engines: list[Engine], pool: Executor) -> Iterator[str]:
        """Name of a process group of the trainer at rank 0 and the engines after it.

        The name is new each time: an engine may still be a member of a group whose trainer died.
        """
        group = f"weights-{secrets.token_hex(4)}"
        address, port = self.trainer.meeting_point()
        size = len(engines) + 1
        try:
            joining = [
                pool.submit(engine.client.init_update_group, address, port, rank, size, group, self.backend)
                for rank, engine in enumerate(engines, start=1)
            ]
            self.trainer.open_update_group(address, port, size, group)
            for call in joining:
                call.result()
            yield group
        finally:
            for engine in engines:
                with contextlib.suppress(EngineError):
                    engine.client.destroy_update_group(group)
            self.trainer.close_update_group()


def _receive(engine: Engine, specs: Sequence["TensorSpec"], group: str) -> None:
    names, dtypes, shapes = zip(*specs, strict=True)
    engine.client.update_from_group(names, dtypes, shapes, group)
