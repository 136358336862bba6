"""Prefect's door to evaluation."""

from pathlib import Path

from tasks.evaluation.evaluate import evaluate
from tasks.evaluation.records import HELD_OUT, find_report, save_report
from tasks.evaluation.report import EvaluationReport
from tasks.models import prepared_tokenizer
from tasks.problems import build_source
from tasks.problems.jsonl import prompt_template, read_problems
from tasks.retry import retryable
from tasks.run import Run
from tasks.samples import Problem
from tasks.weights.serving import serving_clients


@retryable(name="evaluate", task_run_name="{run.id}: evaluate version {version}")
def evaluate_version(run: Run, version: int, dataset: Path | None = None) -> EvaluationReport:
    """Evaluate a version on a JSONL file, or on the run's held-out problems unless that was done already."""
    found = find_report(run, version, HELD_OUT) if dataset is None else None
    if found and found.settings == run.config.evaluation:
        return found
    servers = serving_clients(run, version)
    tokenizer = prepared_tokenizer(run.config.model, run.home)
    name = _name(dataset) if dataset else HELD_OUT
    report = evaluate(servers, _problems(run, dataset), tokenizer, run.config, name, version)
    save_report(run, report)
    return report


def _name(dataset: Path) -> str:
    """What a file's figures go by: not by the name of the run's own problems."""
    return dataset.name if dataset.stem == HELD_OUT else dataset.stem


def _problems(run: Run, dataset: Path | None) -> list[Problem]:
    if dataset is None:
        return build_source(run.config.problems).held_out(None, run.config.evaluation.problems)
    return read_problems(dataset, prompt_template(run.config.problems))
