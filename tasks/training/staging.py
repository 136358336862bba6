"""Staging: the trainer's weights exported to the store, under a version number of their own."""

import shutil
from pathlib import Path

from tasks.probe.probe import Probe, save_probe
from tasks.record.run import Run
from tasks.record.versions import stage_version
from tasks.record.weight_version import WeightVersion
from tasks.training.group import TrainerGroup


def stage(
    run: Run, trainer: TrainerGroup, model_path: Path, step: int, parent: int | None, probe: list[list[int]]
) -> WeightVersion:
    """Export the trainer's weights after `step` as a version; the same weights again give the same."""
    incoming = run.store.folder(f"{run.id}/weights/incoming-{step:06d}")
    shutil.rmtree(incoming, ignore_errors=True)
    manifest = trainer.export(incoming, model_path)
    version = stage_version(run, manifest, parent, step)
    folder = run.store.folder(run.weights_key(version.number))
    shutil.rmtree(folder, ignore_errors=True)  # an earlier try's, whole or not
    incoming.rename(folder)
    run.store.upload(run.weights_key(version.number))
    save_probe(run, version.number, Probe(sequences=probe, logprobs=trainer.score(probe)))
    return version
