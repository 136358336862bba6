"""By disk: engines load the exported folder."""

from dataclasses import dataclass, field

from configs.transport import DiskTransport
from tasks.fleet.engines import Engine, on_all
from tasks.publishing.staged import StagedVersion
from tasks.publishing.transports.base import Transfer, Transport
from tasks.record.run import Run
from tasks.record.weight_version import WeightVersion


@dataclass(frozen=True)
class Disk(Transport):
    """Every engine loads the exported folder."""

    settings: DiskTransport = field(default_factory=DiskTransport)
    name: str = "disk"

    def prepare(self, run: Run, weights: WeightVersion, held: bool) -> Transfer:
        """See Transport."""
        return self

    def transfer(self, engines: list[Engine], staged: StagedVersion) -> int:
        """See Transfer."""
        on_all(engines, lambda engine: engine.client.update_from_disk(staged.folder))
        return staged.manifest.bytes * len(engines)
