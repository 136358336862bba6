"""A trainer that holds the run's newest committed step, however it got there."""

from infra.home import Home
from tasks.commits import StepCommit
from tasks.models import prepare_model
from tasks.run import Run
from tasks.training.group import TrainerGroup, TrainerLost


class ReplayMismatch(RuntimeError):
    """Replaying committed batches gave other weights than were committed."""


def ready_trainer(run: Run) -> TrainerGroup:
    """The run's trainer; when it is gone, a new one that restored and replayed to the newest commit."""
    try:
        trainer = TrainerGroup.connect(run)
        if trainer.alive():
            return trainer
        trainer.stop()
    except TrainerLost:
        pass
    trainer = TrainerGroup.start(run)
    _restore(run, trainer)
    return trainer


def _restore(run: Run, trainer: TrainerGroup) -> None:
    commits = run.commits.all()
    checkpointed = [commit for commit in commits if _checkpoint_exists(run, commit)]
    if checkpointed:
        trainer.restore(run.store.folder(checkpointed[-1].checkpoint or ""))
        replay_from = checkpointed[-1].step
    else:
        trainer.load(prepare_model(run.config.model, Home(run.home)))
        replay_from = 0
    for commit in commits:
        if commit.step > replay_from and commit.batch is not None:
            trainer.train(commit.step, commit.batch, version=commit.parent_version)
    if commits and trainer.content_hash() != commits[-1].weights_hash:
        raise ReplayMismatch(
            f"restoring step {commits[-1].step} of {run.id} gave other weights than its commit records: this "
            "machine's kernels are not deterministic or the checkpoint was changed; with "
            "trainer.checkpoint_every 1 no step is ever replayed"
        )


def _checkpoint_exists(run: Run, commit: StepCommit) -> bool:
    return commit.checkpoint is not None and run.store.folder(commit.checkpoint).exists()
