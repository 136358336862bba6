"""Prefect's door to MLflow."""

from prefect import get_run_logger, task

from infra.tracking import TrackingError
from tasks.record.run import Run
from tasks.reporting.tracking import finish_run


@task(name="record-in-mlflow", task_run_name="{run.id}: record in MLflow")
def record_in_mlflow(run: Run, failed: bool = False) -> None:
    """Bring MLflow up to date with every commit and evaluation of the run, and add the plots.

    `failed` ends the MLflow run as FAILED. MLflow being down is a warning: it fails no run,
    and can be caught up with at any time.
    """
    try:
        finish_run(run, failed)
    except TrackingError as error:
        get_run_logger().warning("MLflow is behind: overnight sync-mlflow %s (%s)", run.id, error)
