"""Weight versions: how each got its number, and which have their weights in the store."""

from pydantic import BaseModel

from infra.store.base import KeyExistsError
from tasks.record.keys import numbers_in
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.stored import RecordUnreadable, create_record, read_record
from tasks.record.weight_version import WeightVersion

_RECORD = "version.json"
_EARLIER = "manifest.json"
"""The record of releases before 0.2, which held the tensors, too."""


def stage_version(run: Run, manifest: Manifest, parent: int | None, step: int) -> WeightVersion:
    """The version of weights: a new one, or the one that the same weights of the step are already.

    Numbers count up from 0 and are never given twice: weights that differ from what an earlier try of the
    step staged get the next number, also when several processes stage at once.
    """
    while True:
        numbers = staged_numbers(run)
        for number in reversed(numbers):
            staged = read_version(run, number)
            if staged.step < step:
                break
            if (staged.step, staged.parent, staged.hash) == (step, parent, manifest.hash):
                return staged
        version = WeightVersion(
            number=numbers[-1] + 1 if numbers else 0,
            parent=parent,
            step=step,
            hash=manifest.hash,
            bytes=manifest.bytes,
            format=run.config.number_format,
        )
        try:
            create_record(run.store, _key(run, version.number), version)
        except KeyExistsError:
            continue  # another process took the number; look again
        return version


def read_version(run: Run, number: int) -> WeightVersion:
    """The version of a number; KeyMissingError when there is none."""
    if run.store.exists(_key(run, number)):
        return read_record(run.store, _key(run, number), WeightVersion)
    return _earlier_version(run, number)


def staged_numbers(run: Run) -> list[int]:
    """Every version number that was given, ascending."""
    keys = run.store.list(run.record_key("versions"))
    return numbers_in(key for key in keys if key.endswith((_RECORD, _EARLIER)))


def read_manifest(run: Run, weights: WeightVersion) -> Manifest:
    """What the weights of a version are made of; KeyMissingError when they are not in the store.

    RecordUnreadable when it is that of other weights.
    """
    key = f"{run.weights_key(weights.number)}/manifest.json"
    manifest = read_record(run.store, key, Manifest)
    if manifest.hash != weights.hash:
        raise RecordUnreadable(f"{key} has hash {manifest.hash}, and version {weights.number} {weights.hash}")
    return manifest


def exported_versions(run: Run) -> list[int]:
    """The versions whose weights are still in the store, ascending."""
    return numbers_in(run.store.list_folders(run.record_key("weights")))


class _EarlierVersion(BaseModel):
    """What a version's record was before 0.2."""

    version: int
    parent: int | None
    step: int
    hash: str
    bytes: int


def _earlier_version(run: Run, number: int) -> WeightVersion:
    earlier = read_record(run.store, run.version_key(number, _EARLIER), _EarlierVersion)
    named = earlier.model_dump(exclude={"version"})
    return WeightVersion(number=earlier.version, format=run.config.number_format, **named)


def _key(run: Run, number: int) -> str:
    return run.version_key(number, _RECORD)
