"""Evaluation reports in the run store: one for each version and dataset."""

import re

from tasks.record.evaluation_report import EvaluationReport
from tasks.record.keys import numbered_key
from tasks.record.run import Run
from tasks.record.stored import read_record, replace_record

HELD_OUT = "held-out"
"""Name of the dataset of a run's own held-out problems."""


def save_report(run: Run, report: EvaluationReport) -> str:
    """Keep a report, in place of an earlier one of the same version and dataset; its key."""
    key = _key(run, report.version, report.dataset)
    replace_record(run.store, key, report)
    return key


def find_report(run: Run, version: int, dataset: str) -> EvaluationReport | None:
    """The report of a version on a dataset; None when there is none yet."""
    key = _key(run, version, dataset)
    return read_record(run.store, key, EvaluationReport) if run.store.exists(key) else None


def is_complete(run: Run) -> bool:
    """Whether its steps are done and its last version was evaluated, which else could not be the best."""
    newest = run.commits.newest()
    return run.is_finished and newest is not None and find_report(run, newest.version, HELD_OUT) is not None


def report_keys(run: Run) -> list[str]:
    """Keys of all reports, by version and then dataset."""
    return run.store.list(run.record_key("evaluations"))


def read_reports(run: Run) -> list[EvaluationReport]:
    """All reports, by version and then dataset; empty when nothing was evaluated."""
    return [read_record(run.store, key, EvaluationReport) for key in report_keys(run)]


def metrics_by_version(run: Run) -> dict[int, dict[str, float]]:
    """Metric name (`eval/<dataset>/avg_at_k`) to value, of every version that was evaluated."""
    metrics: dict[int, dict[str, float]] = {}
    for report in read_reports(run):
        metrics.setdefault(report.version, {}).update(report.metrics())
    return metrics


def _key(run: Run, version: int, dataset: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", dataset)
    return f"{numbered_key(run.id, 'evaluations', version)}-{name}.json"
