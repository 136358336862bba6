"""Prefect's door to the report."""

from prefect.artifacts import create_markdown_artifact

from tasks.record.run import Run
from tasks.reporting.report import RunReport, report_of
from tasks.retry import retryable


@retryable(name="write-report", task_run_name="{run.id}: report")
def write_report(run: Run) -> RunReport:
    """The run's report, also as an artifact in Prefect's UI."""
    report = report_of(run)
    create_markdown_artifact(report.markdown(), key=f"{run.config.name}-report", description=f"Run {run.id}")
    return report
