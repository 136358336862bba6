"""Weight versions: how each got its number, and which have their weights in the store."""

import time

from pydantic import BaseModel, ConfigDict

from infra.store.base import KeyExistsError
from tasks.record.evaluations import HELD_OUT, read_reports
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.stored import read_record


class StagedManifest(BaseModel):
    """A version number taken by weights: what `<run>/versions/<version>/manifest.json` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    version: int
    parent: int | None
    step: int
    hash: str
    bytes: int
    manifest: Manifest
    created_at: float


def stage_version(run: Run, manifest: Manifest, parent: int | None, step: int) -> int:
    """The version number of weights: a new one, or the one that the same weights of the step have already.

    Numbers count up from 0 and are never given twice: weights that differ from what an earlier try of the
    step staged get the next number, also when several processes stage at once.
    """
    while True:
        numbers = staged_numbers(run)
        for number in reversed(numbers):
            staged = read_manifest(run, number)
            if staged.step < step:
                break
            if (staged.step, staged.parent, staged.hash) == (step, parent, manifest.hash):
                return number
        version = numbers[-1] + 1 if numbers else 0
        staged = StagedManifest(
            version=version,
            parent=parent,
            step=step,
            hash=manifest.hash,
            bytes=manifest.bytes,
            manifest=manifest,
            created_at=time.time(),
        )
        try:
            run.store.create(_manifest_key(run, version), staged.model_dump_json(indent=1).encode())
        except KeyExistsError:
            continue  # another process took the number; look again
        return version


def read_manifest(run: Run, version: int) -> StagedManifest:
    """What was staged under a version number; KeyMissingError when nothing was."""
    return read_record(run.store, _manifest_key(run, version), StagedManifest)


def staged_numbers(run: Run) -> list[int]:
    """Every version number that was given, ascending."""
    keys = run.store.list(f"{run.id}/versions")
    return sorted(int(key.split("/")[-2]) for key in keys if key.endswith("/manifest.json"))


def exported_versions(run: Run) -> list[int]:
    """The versions whose weights are still in the store, ascending."""
    return _versions(run.store.list_folders(f"{run.id}/weights"))


def prune_weights(run: Run, current: int) -> None:
    """Remove exported folders beyond publish.keep_versions.

    Version 0, the current one and the one with the best evaluation stay.
    """
    keep = run.config.publish.keep_versions
    if keep is None:
        return
    own = [report for report in read_reports(run) if report.dataset == HELD_OUT]
    best = max(own, key=lambda report: report.avg_at_k, default=None)
    precious = {0, current, best.version if best else 0}
    for version in _versions(run.store.list(f"{run.id}/weights"))[:-keep]:
        if version not in precious:
            run.store.remove(run.weights_key(version))


def _versions(keys: list[str]) -> list[int]:
    return sorted({int(part) for key in keys if (part := key.split("/")[2]).isdigit()})


def _manifest_key(run: Run, version: int) -> str:
    return f"{run.id}/versions/{version:06d}/manifest.json"
