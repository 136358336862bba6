"""Prefect's door to publishing."""

from tasks.publishing.serving import publish_version
from tasks.record.commits import PublishReport
from tasks.record.run import Run
from tasks.retry import retryable
from tasks.training.update import Update


@retryable(
    name="publish-weights", task_run_name="{run.id} step {update.step}: publish version {update.version}"
)
def publish_weights(run: Run, update: Update) -> PublishReport:
    """Bring the new version to every engine, verified, or refuse it."""
    return publish_version(run, update.version, update.parent)
