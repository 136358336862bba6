"""What it takes to bring a staged version to engines."""

from dataclasses import dataclass
from pathlib import Path

from infra.store import StoredFolder
from tasks.probe.probe import Probe, read_probe
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.stored import read_record


@dataclass(frozen=True)
class StagedVersion:
    """Everything that is needed to bring a weight version to an engine, and to check that it is there."""

    version: int
    folder: Path
    """Where its checkpoint lies on a machine that has it."""
    manifest: Manifest
    probe: Probe
    stored: StoredFolder | None = None
    """Where a machine that has it not gets it; None for a folder that all see."""

    def local(self) -> Path:
        """The checkpoint on this machine, fetched where it is not here."""
        return self.stored.local() if self.stored else self.folder


def read_staged(run: Run, version: int) -> StagedVersion:
    """A version that was staged before; KeyMissingError when it was not, or its folder was pruned."""
    key = run.weights_key(version)
    manifest = read_record(run.store, f"{key}/manifest.json", Manifest)
    stored = None if run.store.shared else StoredFolder(run.config.store, run.home, key)
    return StagedVersion(version, run.store.folder(key), manifest, read_probe(run, version), stored)
