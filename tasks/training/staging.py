"""Staging: the trainer's weights exported to the store, under a version number of their own."""

from tasks.probe.probe import Probe, save_probe
from tasks.record.run import Run
from tasks.record.versions import stage_version
from tasks.record.weight_version import WeightVersion
from tasks.training.trainer import Trainer


def stage(run: Run, trainer: Trainer, step: int, parent: int | None, probe: list[list[int]]) -> WeightVersion:
    """Export the trainer's weights after `step` as a version; the same weights again give the same."""
    version = stage_version(run, trainer.export(), parent, step)
    trainer.keep(run.weights_key(version.number))
    save_probe(run, version.number, Probe(sequences=probe, logprobs=trainer.score(probe)))
    return version
