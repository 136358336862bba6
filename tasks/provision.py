"""Prefect's door to bringing a run's cluster up."""

from tasks.cluster.provision import provision
from tasks.record.run import Run
from tasks.retry import retryable


@retryable(name="provision", task_run_name="{run.id}: provision")
def provision_cluster(run: Run, trainer: bool = True) -> None:
    """Bring up the run's Ray cluster, MLflow's projector, engines, and by `trainer` the trainer."""
    provision(run, trainer)
