"""Prefect's door to taking a run's cluster down."""

from prefect import task

from tasks.cluster.provision import release
from tasks.record.run import Run


@task(name="release", task_run_name="{run.id}: release")
def release_cluster(run: Run) -> None:
    """Take everything down that provisioning brought up."""
    release(run)
