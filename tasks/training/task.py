"""Prefect's doors to training."""

from tasks.retry import retryable
from tasks.reward.graded import Graded
from tasks.run import Run
from tasks.training.update import Update, initial_update, update_policy


@retryable(name="stage-initial-weights", task_run_name="{run.id} step 0: stage version 0")
def stage_initial_weights(run: Run) -> Update:
    """Stage the weights that the run starts from as version 0."""
    return initial_update(run)


@retryable(name="train-step", task_run_name="{run.id} step {graded.step}: train from version {parent}")
def train_step(run: Run, graded: Graded, parent: int) -> Update:
    """Train on the graded batch and stage the new weights."""
    return update_policy(run, graded, parent)
