"""Offline evaluation of one weight version."""

from prefect import flow

from tasks.evaluation.report import EvaluationReport
from tasks.evaluation.task import evaluate_version
from tasks.run import Run


@flow(name="evaluate-checkpoint", flow_run_name="{run.id}: evaluate version {version}", validate_parameters=False)
def evaluate_checkpoint(run: Run, version: int) -> EvaluationReport:
    """Evaluate a weight version on the run's held-out problems."""
    return evaluate_version(run, version)
