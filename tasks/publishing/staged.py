"""What it takes to bring a staged version to engines."""

from dataclasses import dataclass
from pathlib import Path

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
    manifest: Manifest
    probe: Probe

    @property
    def version(self) -> int:
        """Its number."""
        return self.weights.number


def read_staged(run: Run, number: int) -> StagedVersion:
    """A version that was staged before; KeyMissingError when it was not, or its folder was pruned."""
    weights = read_version(run, number)
    manifest, probe = read_manifest(run, weights), read_probe(run, number)
    return StagedVersion(weights, run.store.local(run.weights_key(number)), manifest, probe)
