"""By disk: engines load the exported folder."""

from dataclasses import dataclass

from configs.transport import DiskTransport
from infra.engines.client import EngineRefused
from infra.weights_folder import WeightsFolder, WeightsMismatch
from tasks.fleet.engines import Engine, Fleet, on_all
from tasks.publishing.transports.base import Transfer, Transport
from tasks.publishing.transports.staged import StagedVersion
from tasks.record.weight_version import WeightVersion


@dataclass(frozen=True)
class Disk(Transport):
    """Every engine loads the exported folder."""

    settings: DiskTransport

    def prepare(self, fleet: Fleet, weights: WeightVersion, held: bool) -> Transfer:
        """See Transport."""
        return Loading(fleet)


@dataclass(frozen=True)
class Loading:
    """Every engine loads the exported folder, which its machine fetches first where it does not see it."""

    fleet: Fleet | None = None
    """Whose engines they are; None for engines of this machine."""
    name: str = "disk"

    def transfer(self, engines: list[Engine], staged: StagedVersion) -> int:
        """See Transfer."""
        offered = None
        if self.fleet is not None and staged.stored is not None:
            offered = self.fleet.on_machines(_fetched, staged)[0]
        on_all(engines, lambda engine: engine.client.update_from_disk(staged.folder, like=offered))
        return staged.manifest.bytes * len(engines)


def _fetched(staged: StagedVersion) -> WeightsFolder:
    """What this machine has of a version now; EngineRefused when that is not whole."""
    try:
        return WeightsFolder(staged.local())
    except WeightsMismatch as error:
        raise EngineRefused(str(error)) from None
