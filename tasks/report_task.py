"""Prefect's doors to reporting."""

from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact

from infra.tracking import TrackingError
from tasks.report import RunReport, report_of
from tasks.retry import retryable
from tasks.run import Run
from tasks.tracking import finish_run


@retryable(name="write-report", task_run_name="{run.id}: report")
def write_report(run: Run) -> RunReport:
    """The run's report, also as an artifact in Prefect's UI."""
    report = report_of(run)
    create_markdown_artifact(report.markdown(), key=f"report-{run.config.name}", description=run.id)
    return report


@task(name="record-in-mlflow", task_run_name="{run.id}: record in MLflow")
def record_in_mlflow(run: Run, failed: bool = False) -> None:
    """Bring MLflow up to date with every commit and evaluation of the run, and add the plots.

    MLflow being down is a warning: it fails no run, and can be caught up with at any time.
    """
    try:
        finish_run(run, failed)
    except TrackingError as error:
        get_run_logger().warning("MLflow is behind: overnight sync-mlflow %s (%s)", run.id, error)
