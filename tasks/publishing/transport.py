"""How tensors travel to the engines: loaded from the exported folder or a copy, sent, or broadcast."""

import contextlib
import logging
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from infra.engines.checkpoint import Checkpoint, WeightsMismatch, read_checkpoint
from infra.engines.client import EngineError, EngineRefused
from infra.engines.tensors import buckets, pack
from tasks.fleet.engines import Engine, EngineFleet, on_all
from tasks.model.bridge.checkpoint import HfCheckpoint
from tasks.publishing.mirror import mirror
from tasks.publishing.staged import StagedVersion
from tasks.record.run import Run
from tasks.training.trainer import Trainer

if TYPE_CHECKING:
    from tasks.model.bridge.buckets import TensorSpec

log = logging.getLogger(__name__)


class Transfer(Protocol):
    """Puts the tensors of a staged version into every engine; the engines are paused meanwhile."""

    @property
    def name(self) -> str:
        """What the ledger calls it."""

    def __call__(self, engines: list[Engine], staged: StagedVersion) -> int:
        """Transfer to all the engines at once; bytes that travelled. What it raises leaves them with
        unverified weights."""


@dataclass(frozen=True)
class FromDisk:
    """Every engine loads the exported folder, which its machine fetches first where it does not see it."""

    run: Run | None = None
    """Whose engines they are; None for engines of this machine."""
    name: str = "disk"

    def __call__(self, engines: list[Engine], staged: StagedVersion) -> int:
        """See Transfer."""
        offered = None
        if self.run is not None and staged.stored is not None:
            offered = EngineFleet(self.run).on_machines(_fetched, staged)[0]
        on_all(engines, lambda engine: engine.client.update_from_disk(staged.folder, like=offered))
        return staged.manifest.bytes * len(engines)


@dataclass(frozen=True)
class FromMirror:
    """Every engine loads the copy of its own machine, which is brought up to date first."""

    run: Run
    name: str = "delta"

    def __call__(self, engines: list[Engine], staged: StagedVersion) -> int:
        """See Transfer."""
        copies = EngineFleet(self.run).on_machines(mirror, self.run, staged.version)
        for because in {copy.fetched_because for copy in copies if copy.fetched_because}:
            log.warning("%s: a machine fetched the whole of it", because)
        folder = copies[0].folder
        on_all(engines, lambda engine: engine.client.update_from_disk(folder, like=staged.local()))
        return sum(copy.sent_bytes for copy in copies)


@dataclass(frozen=True)
class FromPublisher:
    """This process reads the exported folder and sends it bucket by bucket, each to every engine at once.

    One bucket is in memory at a time, in the forms that it takes on its way: bytes, text, and a request for
    each engine.
    """

    bucket_bytes: float
    name: str = "tensor"

    def __call__(self, engines: list[Engine], staged: StagedVersion) -> int:
        """See Transfer."""
        sent = 0
        with (
            HfCheckpoint(staged.local()) as checkpoint,
            ThreadPoolExecutor(max_workers=len(engines)) as pool,
            _update_session(engines),
        ):
            tensors = ((name, checkpoint.whole(name)) for name in sorted(checkpoint.names))
            for bucket in map(pack, buckets(tensors, self.bucket_bytes)):
                sending = [pool.submit(engine.client.update_from_bucket, bucket) for engine in engines]
                for call in sending:
                    call.result()
                sent += len(bucket.content) * len(engines)
        return sent


@dataclass(frozen=True)
class FromTrainer:
    """The trainer, which must hold the version, broadcasts it bucket by bucket."""

    trainer: Trainer
    backend: str
    name: str = "process_group"

    def __call__(self, engines: list[Engine], staged: StagedVersion) -> int:
        """See Transfer."""
        with (
            ThreadPoolExecutor(max_workers=len(engines)) as pool,
            self._group(engines, pool) as group,
            _update_session(engines),
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


def _fetched(staged: StagedVersion) -> Checkpoint:
    """What this machine has of a version now; EngineRefused when that is no whole checkpoint."""
    try:
        return read_checkpoint(staged.local())
    except WeightsMismatch as error:
        raise EngineRefused(str(error)) from None


@contextmanager
def _update_session(engines: list[Engine]) -> Iterator[None]:
    """Open an update on every engine, and close it however the transfer ends: an open one bars the next."""
    try:
        for engine in engines:
            engine.client.begin_update()
        yield
    finally:
        for engine in engines:
            with contextlib.suppress(EngineError):  # the hashes tell what an engine holds
                engine.client.end_update()


def _receive(engine: Engine, specs: Sequence["TensorSpec"], group: str) -> None:
    names, dtypes, shapes = zip(*specs, strict=True)
    engine.client.update_from_group(names, dtypes, shapes, group)
