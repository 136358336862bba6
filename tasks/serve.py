"""Prefect's door to having a version served."""

from tasks.publishing.serving import ensure_served
from tasks.record.run import Run
from tasks.retry import retryable


@retryable(name="serve-version", task_run_name="{run.id}: serve version {version}")
def serve_version(run: Run, version: int) -> None:
    """Have every engine hold a version, verified: those that died are started, those behind published to."""
    ensure_served(run, version)
