"""Offline evaluation of one weight version."""

from pathlib import Path

from prefect import flow

from flows.labels import label
from flows.ownership import claim
from infra.home import Home
from tasks.evaluate import evaluate_version
from tasks.evaluation.request import check_request
from tasks.provision import provision_cluster
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.run import Run
from tasks.record.runs import exclusive, load_run
from tasks.record_in_mlflow import record_in_mlflow
from tasks.release import release_cluster


@flow(
    name="evaluate-weights",
    flow_run_name="{run.id}: evaluate version {version}",
    validate_parameters=False,
    on_running=[claim],
)
def evaluate_weights(run: Run, version: int, dataset: Path | None = None) -> EvaluationReport:
    """Evaluate a weight version on the rollout engines, or on its own where evaluation.engines says so."""
    return evaluate_version(run, version, dataset)


@flow(
    name="evaluate-offline",
    flow_run_name="{run.id}: evaluate version {version}",
    validate_parameters=False,
    on_running=[claim],
)
def evaluate_offline(run: Run, version: int, dataset: Path | None = None) -> EvaluationReport:
    """Bring up what an evaluation needs, evaluate a weight version, release and record."""
    try:
        provision_cluster(run, trainer=False)
        return evaluate_weights(run, version, dataset)
    finally:
        release_cluster(run)
        record_in_mlflow(run)


@flow(name="evaluate-run", on_running=[claim])
def evaluate_run(run_id: str, version: int | None = None, dataset: Path | None = None) -> EvaluationReport:
    """Evaluate a weight version of a run, the newest without `version`, offline.

    `dataset` is a JSONL file with `problem` and `answer` on the worker's machine; the run's held-out problems
    without it.
    """
    run = load_run(run_id, Home.find())
    wanted = check_request(run, version, dataset)
    label(run)
    with exclusive(run):
        return evaluate_offline(run, wanted, dataset)
