"""Offline evaluation of one weight version."""

from pathlib import Path

from prefect import flow

from flows.ownership import claim
from tasks.evaluate import evaluate_version
from tasks.provision import provision_cluster
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.run import Run
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
