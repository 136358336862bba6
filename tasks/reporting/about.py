"""What MLflow says of a run beside its figures: where it is from, what it learns from, what became of it."""

import hashlib
import importlib.metadata
import json
import subprocess
from pathlib import Path

from mlflow.utils.mlflow_tags import (
    MLFLOW_GIT_COMMIT,
    MLFLOW_RUN_NOTE,
    MLFLOW_SOURCE_NAME,
    MLFLOW_SOURCE_TYPE,
)

from configs.problems import JsonlProblems, ProblemsConfig
from infra.tracking.mlflow_store import DataSet, RegisteredVersion
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import HELD_OUT
from tasks.record.run import Run
from tasks.reporting.ledger import VersionRecord

_SOURCE = Path(__file__).parents[2]
_GIT_TIMEOUT_S = 5
_DIGITS = 16
"""Of a SHA-256, enough to tell configurations and data sets apart."""


def description_of(run: Run) -> dict[str, str]:
    """Tags of the MLflow run that its page shows as description and source."""
    tags = {
        MLFLOW_RUN_NOTE: run.config.description,
        MLFLOW_SOURCE_NAME: f"overnight {importlib.metadata.version('overnight')}",
        MLFLOW_SOURCE_TYPE: "LOCAL",
        MLFLOW_GIT_COMMIT: _git_commit(),
    }
    return {name: text for name, text in tags.items() if text}


def labels_of(run: Run) -> dict[str, str]:
    """Tags to find runs by. The configuration's is the same for all nights of one."""
    asked = run.night.asked if run.night else run.config
    labels = {
        "overnight.model": " ".join(str(value) for value in asked.model.model_dump().values()),
        "overnight.configuration": hashlib.sha256(asked.model_dump_json().encode()).hexdigest()[:16],
    }
    if run.night:
        labels |= {"overnight.lineage": run.night.lineage, "overnight.night": str(run.night.number)}
    return labels | ({"overnight.origin": str(run.origin)} if run.origin else {})


def training_data(run: Run) -> DataSet:
    """What the policy practises on. Another file under the same path is another data set."""
    problems = run.config.problems
    described: object = problems.model_dump(mode="json")
    if isinstance(problems, JsonlProblems) and problems.path.is_file():
        with problems.path.open("rb") as file:
            described = [described, hashlib.file_digest(file, "sha256").hexdigest()]
    return DataSet(_name(problems), _digest(described), _origin(problems), "training")


def evaluation_data(run: Run, report: EvaluationReport) -> DataSet:
    """What a version was evaluated on."""
    asked = [(problem.id, problem.answer) for problem in report.problems]
    problems = run.config.problems
    held_out = f"held out of {_name(problems)}: {_origin(problems)}"
    source = held_out if report.dataset == HELD_OUT else report.dataset
    return DataSet(report.dataset, _digest(asked), source, "evaluation")


def registered(run: Run, record: VersionRecord, model_id: str) -> RegisteredVersion:
    """A version of the run as a row of MLflow's registry says what it is."""
    figures = {"reward": record.reward, "avg@k": (record.evaluation or {}).get(f"eval/{HELD_OUT}/avg_at_k")}
    told = {name: f"{value:.3f}" for name, value in figures.items() if value is not None}
    name = version_name(record.version)
    figures_text = "".join(f", {figure} {value}" for figure, value in told.items())
    return RegisteredVersion(
        model_id=model_id,
        source=run.store.uri(run.weights_key(record.version)),
        description=f"{name} of run {run.id}{figures_text}, hash {record.hash[:_DIGITS]}",
        tags={"run": run.id, "version": name, "hash": record.hash},
    )


def version_name(version: int) -> str:
    """What MLflow's pages call a weight version."""
    return f"v{version:06d}"


def _name(problems: ProblemsConfig) -> str:
    return problems.path.stem if isinstance(problems, JsonlProblems) else problems.kind


def _origin(problems: ProblemsConfig) -> str:
    return str(problems.path) if isinstance(problems, JsonlProblems) else "generated"


def _digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _git_commit() -> str:
    """Commit of the checkout that the code runs from; empty where it is none."""
    if not (_SOURCE / ".git").exists():
        return ""
    command = ["git", "-C", str(_SOURCE), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
