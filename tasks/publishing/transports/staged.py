"""What it takes to bring a staged version to engines."""

from dataclasses import dataclass
from pathlib import Path

from infra.store import StoredFolder
from tasks.probe.probe import Probe, read_probe
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.versions import read_manifest, read_version
from tasks.record.weight_version import WeightVersion


@dataclass(frozen=True)
class StagedVersion:
    """A version with all that is needed to bring it to an engine, and to check that it is there."""

    weights: WeightVersion
    folder: Path
    """Where its checkpoint lies on a machine that has it."""
    manifest: Manifest
    probe: Probe
    stored: StoredFolder | None = None
    """Where a machine that has it not gets it; None for a folder that all see."""

    def local(self) -> Path:
        """The checkpoint on this machine, fetched where it is not here."""
        return self.stored.local() if self.stored else self.folder

    @property
    def version(self) -> int:
        """Its number."""
        return self.weights.number


def read_staged(run: Run, number: int) -> StagedVersion:
    """A version that was staged before; KeyMissingError when it was not, or its folder was pruned."""
    key, weights = run.weights_key(number), read_version(run, number)
    manifest, probe = read_manifest(run, weights), read_probe(run, number)
    stored = None if run.store.shared else StoredFolder(run.config.store, run.home, key)
    return StagedVersion(weights, run.store.folder(key), manifest, probe, stored)
