"""By delta: machines make their copy of a version from that of its parent and what changed."""

import contextlib
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from ray.exceptions import RayError

from configs.errors import UserError
from configs.transport import DeltaTransport
from infra.engines.client import EngineTimeout
from infra.home import Home
from tasks.fleet.engines import Engine, Fleet, on_all
from tasks.publishing.transports.base import Transfer, Transport
from tasks.publishing.transports.delta_files import DeltaUnusable, prune_deltas, write_delta
from tasks.publishing.transports.mirror import forget_mirror, mirror
from tasks.publishing.transports.staged import StagedVersion
from tasks.record.run import Run
from tasks.record.weight_version import WeightVersion

log = logging.getLogger(__name__)
_COPIES = 3
"""Of the served version, its parent and the one that is being made."""
_SPARE_BYTES = 1 << 30


@dataclass(frozen=True)
class Delta(Transport):
    """Every engine loads the copy of its own machine."""

    settings: DeltaTransport

    def check(self, home: Home, weights_bytes: int) -> None:
        """This machine has room for its own copies of the weights."""
        root, needed = self._root(home), _COPIES * weights_bytes + _SPARE_BYTES
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"publish.transport.mirror {root} cannot be used ({error.strerror}): permit writing there, "
                "or set it to another folder"
            ) from None
        free = shutil.disk_usage(root).free
        if free < needed:
            raise UserError(
                f"publish.transport.mirror needs {needed >> 20} MiB and {root} has {free >> 20} MiB free: "
                "free some, or set it to another folder"
            )

    def prepare(self, fleet: Fleet, weights: WeightVersion, held: bool) -> Transfer:
        """See Transport. Where no delta can be made, the machines will fetch the whole version."""
        if held:
            try:
                write_delta(fleet.run, weights)
            except DeltaUnusable as error:
                log.warning("%s", error)
        return Patching(fleet, self._root(fleet.run.home))

    def prune(self, run: Run, current: int) -> None:
        """Remove the deltas of versions before the current one."""
        prune_deltas(run, current)

    def forget(self, run: Run) -> None:
        """Remove the machines' copies; what a machine that does not answer keeps, its next run replaces."""
        with contextlib.suppress(EngineTimeout, RayError):
            Fleet(run).on_machines(forget_mirror, run, self._root(run.home))

    def _root(self, home: Home) -> Path:
        """Where machines keep their copies, a folder a run."""
        return self.settings.mirror or home.mirror


@dataclass(frozen=True)
class Patching:
    """Machines bring their copies up to date, and engines load these."""

    fleet: Fleet
    root: Path
    name: str = "delta"

    def transfer(self, engines: list[Engine], staged: StagedVersion) -> int:
        """See Transfer."""
        copies = self.fleet.on_machines(mirror, self.fleet.run, staged.version, self.root)
        for because in {copy.fetched_because for copy in copies if copy.fetched_because}:
            log.warning("%s: a machine fetched the whole of it", because)
        folder = copies[0].folder
        on_all(engines, lambda engine: engine.client.update_from_disk(folder, like=staged.local()))
        return sum(copy.sent_bytes for copy in copies)
