"""Prefect's door to evaluation."""

from pathlib import Path

from tasks.board import board_of
from tasks.evaluation.evaluate import evaluated, found_report
from tasks.fleet.serving import evaluation_fleet, is_served
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.run import Run
from tasks.retry import retryable
from tasks.serve import serve_version


@retryable(name="evaluate", task_run_name="{run.id}: evaluate version {version}")
def evaluate_version(run: Run, version: int, dataset: Path | None = None) -> EvaluationReport:
    """Evaluate a version on a JSONL file, or on the run's held-out problems unless that was done already."""
    report = _evaluated(run, version, dataset)
    if board := board_of(run):
        board.add_evaluation(report)
    return report


def _evaluated(run: Run, version: int, dataset: Path | None) -> EvaluationReport:
    if dataset is None and (found := found_report(run, version)):
        return found
    with evaluation_fleet(run, version) as fleet:
        if not is_served(fleet, version):
            serve_version(run, version, fleet)
        return evaluated(fleet, version, dataset)
