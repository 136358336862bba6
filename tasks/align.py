"""Prefect's door to the alignment check."""

from tasks.alignment.check import check_alignment
from tasks.probe.report import AlignmentReport
from tasks.record.run import Run
from tasks.retry import retryable


@retryable(name="check-alignment", task_run_name="{run.id}: align version {version}")
def align_version(run: Run, version: int, layers: bool) -> AlignmentReport:
    """Compare trainer and engines token by token, and on request the trainer with the exported folder."""
    return check_alignment(run, version, layers)
