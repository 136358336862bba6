"""A staged weight version: its exported folder, what is in it, and how the trainer scores with it."""

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from infra.store.base import KeyExistsError
from tasks.evaluation.records import HELD_OUT, read_reports
from tasks.run import Run
from tasks.stored import read_record
from tasks.training.group import TrainerGroup
from tasks.weights.ledger import stage_version
from tasks.weights.manifest import Manifest


class Probe(BaseModel):
    """Fixed token sequences and the trainer's log-probabilities of their tokens[1:] at temperature 1."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    sequences: list[list[int]]
    logprobs: list[list[float]]


@dataclass(frozen=True)
class StagedVersion:
    """Everything that is needed to bring a weight version to an engine, and to check that it is there."""

    version: int
    folder: Path
    manifest: Manifest
    probe: Probe


def stage(
    run: Run, trainer: TrainerGroup, model_path: Path, step: int, parent: int | None, probe: list[list[int]]
) -> StagedVersion:
    """Export the trainer's weights after `step` as a version; the same weights again give the same."""
    incoming = run.store.folder(f"{run.id}/weights/incoming-{step:06d}")
    shutil.rmtree(incoming, ignore_errors=True)
    manifest = trainer.export(incoming, model_path)
    version = stage_version(run, manifest, parent, step)
    folder = run.store.folder(run.weights_key(version))
    shutil.rmtree(folder, ignore_errors=True)  # an earlier try's, whole or not
    incoming.rename(folder)
    run.store.upload(run.weights_key(version))
    scored = Probe(sequences=probe, logprobs=trainer.score(probe))
    with contextlib.suppress(KeyExistsError):  # an earlier try of this step got as far as here
        run.store.create(_probe_key(run, version), scored.model_dump_json().encode())
    return read_staged(run, version)


def read_staged(run: Run, version: int) -> StagedVersion:
    """A version that was staged before; KeyMissingError when it was not, or its folder was pruned."""
    manifest = read_record(run.store, f"{run.weights_key(version)}/manifest.json", Manifest)
    probe = read_record(run.store, _probe_key(run, version), Probe)
    return StagedVersion(version, run.store.local(run.weights_key(version)), manifest, probe)


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


def exported_versions(run: Run) -> list[int]:
    """The versions whose weights are still in the store, ascending."""
    return _versions(run.store.list_folders(f"{run.id}/weights"))


def _versions(keys: list[str]) -> list[int]:
    return sorted({int(part) for key in keys if (part := key.split("/")[2]).isdigit()})


def _probe_key(run: Run, version: int) -> str:
    return f"{run.id}/versions/{version:06d}/probe.json"
