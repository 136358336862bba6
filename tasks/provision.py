"""Prefect's door to bringing a run's cluster up."""

from tasks.cluster.provision import provision
from tasks.record.run import Run
from tasks.retry import retryable


@retryable(name="provision", task_run_name="{run.id}: provision")
def provision_cluster(run: Run, trainer: bool = True) -> None:
    """Bring up the run's cluster, engines and trainer."""
    provision(run, trainer)
