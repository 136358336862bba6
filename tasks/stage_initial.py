"""Prefect's door to version 0."""

from tasks.record.run import Run
from tasks.retry import retryable
from tasks.training.update import Update, initial_update


@retryable(name="stage-initial-weights", task_run_name="{run.id} step 0: stage version 0")
def stage_initial_weights(run: Run) -> Update:
    """Export the model that the run starts from into its store, as version 0."""
    return initial_update(run)
