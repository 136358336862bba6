"""A trainer that holds the run's newest committed step, however it got there."""

import logging

from configs.errors import RunFailure
from tasks.record.commits import StepCommit
from tasks.record.run import Run
from tasks.training.errors import CheckpointUnusable
from tasks.training.group import TrainerGroup, TrainerLost
from tasks.training.trainer import Trainer

log = logging.getLogger(__name__)


class ReplayMismatch(RunFailure):
    """Replaying committed batches gave other weights than were committed."""


def ready_trainer(run: Run) -> Trainer:
    """The run's trainer; when it is gone, a new one that restored and replayed to the newest commit."""
    try:
        trainer = TrainerGroup.connect(run)
        if trainer.alive():
            return trainer
        trainer.stop()
    except TrainerLost:
        pass
    trainer = TrainerGroup.start(run)
    try:
        _restore(run, trainer)
    except BaseException:
        trainer.stop()  # the next call would take it for ready
        raise
    return trainer


def _restore(run: Run, trainer: Trainer) -> None:
    commits = run.commits.all()
    restored = _load_newest_checkpoint(run, trainer, commits)
    for commit in commits:
        if commit.step > restored and commit.batch is not None:
            trainer.train(commit.step, commit.batch, version=commit.weights.parent)
    if commits and trainer.content_hash() != commits[-1].weights.hash:
        raise ReplayMismatch(
            f"restoring step {commits[-1].step} of {run.id} gave other weights than were committed: its "
            "checkpoints were changed, or this machine computes differently from the one that made them"
        )


def _load_newest_checkpoint(run: Run, trainer: Trainer, commits: list[StepCommit]) -> int:
    """Restore the newest checkpoint that can be used, or else load the first model; the step it holds."""
    for commit in reversed(commits):
        if commit.checkpoint is None:
            continue
        try:
            trainer.restore(commit.checkpoint)
        except CheckpointUnusable as error:
            log.warning("%s; going back to an earlier one", error)
            continue
        if trainer.applied_step() == commit.step:
            return commit.step
        log.warning("%s does not hold step %d; going back to an earlier one", commit.checkpoint, commit.step)
    trainer.load()
    return 0
