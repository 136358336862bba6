"""Prefect's door to training."""

from tasks.grading.graded import Graded
from tasks.record.run import Run
from tasks.retry import retryable
from tasks.training.update import Update, update_policy


@retryable(name="train-step", task_run_name="{run.id} step {graded.step}: train from version {parent}")
def train_step(run: Run, graded: Graded, parent: int) -> Update:
    """Train version `parent` on the graded batch, and export the result under the next version number."""
    return update_policy(run, graded, parent)
