"""Prefect's door to publishing."""

from tasks.publishing.serving import publish_version
from tasks.record.commits import PublishReport
from tasks.record.run import Run
from tasks.record.weight_version import WeightVersion
from tasks.retry import retryable


@retryable(
    name="publish-weights", task_run_name="{run.id} step {weights.step}: publish version {weights.number}"
)
def publish_weights(run: Run, weights: WeightVersion) -> PublishReport:
    """Bring the new version to every engine, verified; PublishRefused leaves them on its parent."""
    return publish_version(run, weights)
