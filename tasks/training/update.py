"""One update of the policy: train on a graded batch, checkpoint, and stage the new weight version."""

import time
from dataclasses import dataclass

from tasks.grading.graded import Graded
from tasks.probe.probe import probe_sequences
from tasks.record.run import Run
from tasks.record.versions import StagedManifest
from tasks.training.recovery import ready_trainer
from tasks.training.staging import stage
from tasks.training.trainer import Trainer


@dataclass(frozen=True)
class Update:
    """A staged weight version and how it was made."""

    step: int
    version: int
    parent: int | None
    weights_hash: str
    checkpoint: str | None
    metrics: dict[str, float]
    train_seconds: float
    stage_seconds: float


def initial_update(run: Run) -> Update:
    """Version 0: the model that the run starts from, as the trainer holds it."""
    started = time.monotonic()
    staged = _stage(run, ready_trainer(run), step=0, parent=None)
    return Update(0, staged.version, None, staged.hash, None, {}, 0.0, time.monotonic() - started)


def update_policy(run: Run, graded: Graded, parent: int) -> Update:
    """Train `parent`'s weights on a graded batch; done once, however often it is called.

    One trainer handle serves the whole update: a trainer that is lost on the way raises TrainerLost, and
    never gives its place to one that has not seen the batch.
    """
    trainer = ready_trainer(run)
    report = trainer.train(graded.step, graded.ref, version=parent)
    trained = time.monotonic()
    checkpoint = _checkpoint(run, trainer, graded.step)
    staged = _stage(run, trainer, graded.step, parent)
    return Update(
        graded.step,
        staged.version,
        parent,
        staged.hash,
        checkpoint,
        report.metrics,
        report.seconds,
        time.monotonic() - trained,
    )


def prune_checkpoints(run: Run) -> None:
    """Remove the trainer checkpoints of finished steps, but for the newest ones that commits name."""
    finished = set(run.commits.steps())
    folders = {int(key.split("/")[2]) for key in run.store.list(f"{run.id}/checkpoints")} & finished
    named = [step for step in sorted(folders) if run.commits.read(step).checkpoint is not None]
    for step in folders.difference(named[-run.config.trainer.keep_checkpoints :]):
        run.store.remove(run.checkpoint_key(step))


def _checkpoint(run: Run, trainer: Trainer, step: int) -> str | None:
    if step % run.config.trainer.checkpoint_every and step != run.config.loop.steps:
        return None
    key = run.checkpoint_key(step)
    trainer.save(key)
    return key


def _stage(run: Run, trainer: Trainer, step: int, parent: int | None) -> StagedManifest:
    return stage(run, trainer, step, parent, probe_sequences(run))
