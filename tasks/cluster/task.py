"""Prefect's doors to the cluster."""

from prefect import task

from tasks.cluster.provision import provision, release
from tasks.retry import retryable
from tasks.run import Run


@retryable(name="provision", task_run_name="{run.id}: provision")
def provision_cluster(run: Run, trainer: bool = True) -> None:
    """Bring up the run's cluster, engines and trainer."""
    provision(run, trainer)


@task(name="release", task_run_name="{run.id}: release")
def release_cluster(run: Run) -> None:
    """Take everything down that provisioning brought up."""
    release(run)
