"""Prefect's door to publishing."""

from tasks.commits import PublishReport
from tasks.retry import retryable
from tasks.run import Run
from tasks.training.update import Update
from tasks.weights.serving import publish_version


@retryable(
    name="publish-weights", task_run_name="{run.id} step {update.step}: publish version {update.version}"
)
def publish_weights(run: Run, update: Update) -> PublishReport:
    """Bring the new version to every engine, verified, or refuse it."""
    return publish_version(run, update.version, update.parent)
