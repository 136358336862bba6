"""What it takes to bring a staged version to engines."""

from dataclasses import dataclass
from pathlib import Path

from tasks.probe.probe import Probe, read_probe
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.stored import read_record


@dataclass(frozen=True)
class StagedVersion:
    """Everything that is needed to bring a weight version to an engine, and to check that it is there."""

    version: int
    folder: Path
    manifest: Manifest
    probe: Probe


def read_staged(run: Run, version: int) -> StagedVersion:
    """A version that was staged before; KeyMissingError when it was not, or its folder was pruned."""
    manifest = read_record(run.store, f"{run.weights_key(version)}/manifest.json", Manifest)
    folder = run.store.local(run.weights_key(version))
    return StagedVersion(version, folder, manifest, read_probe(run, version))
