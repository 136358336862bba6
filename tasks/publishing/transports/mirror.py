"""A machine's own copies of the weights, each made from the one before and what changed, or fetched whole."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from safetensors import SafetensorError

from infra import folders
from infra.store.base import StoreError
from tasks.model.bridge.checkpoint import HfCheckpoint, copy_companions
from tasks.model.errors import WeightsMismatch
from tasks.publishing.transports.delta_files import DeltaUnusable, apply_delta
from tasks.record.manifest import Manifest, TensorEntry
from tasks.record.run import Run
from tasks.record.versions import read_manifest, read_version
from tasks.record.weight_version import WeightVersion


@dataclass(frozen=True)
class Mirrored:
    """A version's copy on one machine."""

    folder: Path
    sent_bytes: int
    """What travelled to the machine for it; 0 when it was there."""
    fetched_because: str = ""
    """Why the whole of it travelled, where that was not to be expected."""


def mirror(run: Run, version: int, root: Path) -> Mirrored:
    """This machine's copy of a staged version, verified tensor by tensor; a checkpoint folder of its own.

    `root` has a folder of copies for each run.

    It is made from the copy of its parent and the delta in the run store; wherever these do not lead to it,
    the whole of it is fetched. StoreError when the copy cannot be kept here.
    """
    root = root / run.id
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock", timeout=run.config.publish.timeout_s):
            return _mirror(run, read_version(run, version), root)
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"publish.transport.mirror {root} cannot be used ({error}): free space or permit writing there, "
            "or set it to another folder"
        ) from error


def forget_mirror(run: Run, root: Path) -> None:
    """Remove this machine's copies of a run's weights; fine when there are none."""
    shutil.rmtree(root / run.id, ignore_errors=True)


def _mirror(run: Run, weights: WeightVersion, root: Path) -> Mirrored:
    folder = _copy_of(root, weights.number)
    kept = {_copy_of(root, version) for version in (weights.number, weights.parent) if version is not None}
    for other in (path for path in root.iterdir() if path.is_dir() and path not in kept):
        shutil.rmtree(other)  # an earlier version, or what a killed process left half done
    if _holds(folder, read_manifest(run, weights)):
        return Mirrored(folder, sent_bytes=0)
    shutil.rmtree(folder, ignore_errors=True)
    because = ""
    if weights.parent is not None:
        try:
            return Mirrored(folder, _patch(run, weights, _copy_of(root, weights.parent), folder))
        except DeltaUnusable as error:
            because = str(error)
    return Mirrored(folder, run.store.fetch(run.weights_key(weights.number), folder), because)


def _copy_of(root: Path, version: int) -> Path:
    return root / f"{version:06d}"


def _patch(run: Run, weights: WeightVersion, parent: Path, folder: Path) -> int:
    with folders.atomic(folder) as partial:
        sent = apply_delta(run, weights, parent, partial)
        copy_companions(parent, partial)
    return sent


def _holds(folder: Path, manifest: Manifest) -> bool:
    """Whether a folder has the tensors of the manifest; what was written before a crash may not."""
    try:
        with HfCheckpoint(folder) as checkpoint:
            return checkpoint.names == manifest.tensors.keys() and all(
                TensorEntry.of(checkpoint.whole(name)) == entry for name, entry in manifest.tensors.items()
            )
    except (WeightsMismatch, SafetensorError, LookupError, ValueError, OSError):
        return False
