"""Prefect's door to having a version served."""

from tasks.fleet.engines import Fleet
from tasks.publishing.serving import ensure_served
from tasks.record.run import Run
from tasks.retry import retryable


@retryable(name="serve-version", task_run_name="{run.id}: serve version {version} for {fleet.role}")
def serve_version(run: Run, version: int, fleet: Fleet) -> None:
    """Have every engine of a fleet hold a version, verified: what died is started, what is behind updated."""
    ensure_served(fleet, version)
