"""One update of the policy: train on a graded batch, checkpoint, and stage the new weight version."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from configs.errors import RunFailure
from tasks.grading.graded import Graded
from tasks.probe.probe import probe_sequences
from tasks.record.credit import VersionCredit
from tasks.record.interval import Interval
from tasks.record.run import Run
from tasks.record.weight_version import WeightVersion
from tasks.training.recovery import ready_trainer
from tasks.training.staging import stage
from tasks.training.trainer import Trainer


@dataclass(frozen=True)
class Update:
    """A staged weight version and how it was made."""

    weights: WeightVersion
    checkpoint: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    credits: tuple[VersionCredit, ...] = ()
    """What the batch says of the versions that generated it."""
    stages: Mapping[str, Interval] = field(default_factory=dict)
    """When training and staging, the checkpoint with it, were at work."""


def initial_update(run: Run) -> Update:
    """Version 0: the model that the run starts from, as the trainer holds it.

    RunFailure when the run goes on from an earlier one's version and has other weights. Quantised ones may
    differ, since the numbers are made anew of the weights that they stand for.
    """
    started = time.time()
    weights = _stage(run, ready_trainer(run), step=0, parent=None)
    origin = run.origin
    if origin and not origin.is_quantised and origin.format == weights.format and origin.hash != weights.hash:
        raise RunFailure(
            f"run {run.id} goes on from {origin} with hash {origin.hash}, but its version 0 has hash "
            f"{weights.hash}: give it up with `overnight abandon {run.id}`"
        )
    return Update(weights, stages={"stage": Interval.since(started)})


def update_policy(run: Run, graded: Graded, parent: int) -> Update:
    """Train `parent`'s weights on a graded batch; done once, however often it is called.

    One trainer handle serves the whole update: a trainer that is lost on the way raises TrainerLost, and
    never gives its place to one that has not seen the batch.
    """
    trainer = ready_trainer(run)
    started = time.time()
    report = trainer.train(graded.step, graded.ref, version=parent)
    trained = time.time()
    checkpoint = _checkpoint(run, trainer, graded.step)
    weights = _stage(run, trainer, graded.step, parent)
    stages = {"train": Interval(started, trained), "stage": Interval.since(trained)}
    return Update(weights, checkpoint, report.metrics, report.credits, stages)


def prune_checkpoints(run: Run) -> None:
    """Remove the trainer checkpoints of finished steps, but for the newest ones that commits name."""
    finished = set(run.commits.steps())
    folders = finished.intersection(run.numbers("checkpoints"))
    named = [step for step in sorted(folders) if run.commits.read(step).checkpoint is not None]
    for step in folders.difference(named[-run.config.trainer.keep_checkpoints :]):
        run.store.remove(run.checkpoint_key(step))


def _checkpoint(run: Run, trainer: Trainer, step: int) -> str | None:
    if step % run.config.trainer.checkpoint_every and step != run.config.loop.steps:
        return None
    key = run.checkpoint_key(step)
    trainer.save(key)
    return key


def _stage(run: Run, trainer: Trainer, step: int, parent: int | None) -> WeightVersion:
    return stage(run, trainer, step, parent, probe_sequences(run))
