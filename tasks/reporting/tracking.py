"""MLflow as a projection of a run's commits and evaluations: caught up with, never waited for."""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from configs.errors import UserError
from infra.locks import locked
from infra.services.foreign import mlflow_place
from infra.services.state import ServiceState
from infra.store.base import KeyMissingError
from infra.tracking import TrackingError
from infra.tracking.mlflow_store import ExternalModel, Measurements, RunStatus, TrackedRun, milliseconds
from tasks.model.source import ModelError
from tasks.record.batches import BatchUnreadable
from tasks.record.best import aliases_of, best_version, is_better, save_aliases
from tasks.record.commits import StepCommit, credits_of
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import report_keys
from tasks.record.keys import numbers_in
from tasks.record.run import Run
from tasks.record.runs import load_run
from tasks.record.stored import read_record
from tasks.reporting.about import (
    description_of,
    evaluation_data,
    labels_of,
    registered,
    training_data,
    version_name,
)
from tasks.reporting.ledger import read_ledger
from tasks.reporting.plots import plots
from tasks.reporting.samples import page_of, samples_of
from tasks.reporting.units import with_small_units

log = logging.getLogger(__name__)

TRACKER = "tracker"
"""Name of the run's tracking actor."""

_RUN_ID = "overnight.run_id"
_VERSION = "overnight.version"
_PROJECTED = "overnight.projected_step"
_ON_A_VERSIONS_ROW = ("avg_at_k", "greedy", "pass_at_k", "maj_at_k")
"""Of an evaluation's figures, that its version's page and row show; the run has them all."""
_LOCK_TIMEOUT_S = 60


class TrackingActor:
    """Keeps MLflow up to date from a low-priority process of its own; `ray.remote` makes an actor of it."""

    def __init__(self, run: Run) -> None:
        os.nice(10)
        self._run = run

    def project(self) -> int | str:
        """The step that MLflow is now up to date with, or in words why it could not be brought there."""
        try:
            return project_run(self._run)
        except Exception as error:  # whatever it is, training goes on and the next call catches up
            return f"{type(error).__name__}: {error}"


def project_run(run: Run) -> int:
    """Bring MLflow up to date with the run's commits and evaluations; the last step that it holds, or -1.

    Doing it again, also after a crash at any point, adds nothing. TrackingError when MLflow is down.
    """
    with _alone(run):
        tracked = _open(run)
        commits = _new_commits(run, tracked)
        model_ids = _project(run, tracked, commits)
        since = min((commit.weights.parent or 0 for commit in commits), default=0)
        _project_evaluations(run, tracked, model_ids, since)
        return commits[-1].step if commits else _projected(tracked)


def run_url(run: Run) -> str | None:
    """The page of a run in MLflow's UI, where the run is from now on; None where no UI was started, or MLflow
    is down, which a run does not wait for."""
    place, own = mlflow_place(run.home), ServiceState(run.home.root).read().get("mlflow")
    server = place.shown if place.is_server else own.url if own else None
    if server is None:
        return None
    try:
        with _alone(run):
            return server + _open(run).page
    except TrackingError:
        return None


def finish_run(run: Run, failed: bool = False) -> None:
    """Bring MLflow up to date, draw the plots, and end the MLflow run when it has its steps, failed or was
    abandoned (there it is KILLED).

    When a run gets all its steps, its newest and its best version become versions of the registered model
    `config.name`: with the alias `newest` unless another run has a newer one, and with `best` if it is better
    than the one that has it (`is_better`). TrackingError when MLflow is down.
    """
    with _alone(run):
        tracked = _open(run)
        model_ids = _project(run, tracked, _new_commits(run, tracked))
        _project_evaluations(run, tracked, model_ids, since=0)
        commits = run.commits.all()
        for name, figure in plots(commits).items():
            tracked.write_figure(f"plots/{name}.png", figure)
        if run.is_finished and not failed and tracked.status != "FINISHED":
            _promote(run, tracked, commits[-1].version)
        if status := _end_of(run, failed):
            tracked.set_status(status, end_s=commits[-1].created_at if commits else None)


def stop_run(run: Run) -> None:
    """End the MLflow run of a run that is stopped as KILLED, unless it has ended; a resume takes it up again.

    TrackingError when MLflow is down.
    """
    with _alone(run):
        tracked = _open(run)
        if tracked.status == "RUNNING":
            tracked.set_status("KILLED")


def _end_of(run: Run, failed: bool) -> RunStatus | None:
    """How the run ended; None when it goes on."""
    if run.is_abandoned:
        return "KILLED"
    if failed:
        return "FAILED"
    return "FINISHED" if run.is_finished else None


def _open(run: Run) -> TrackedRun:
    place = mlflow_place(run.home)
    steps = run.commits.steps()
    start_s = run.commits.read(steps[0]).created_at if steps else time.time()
    tracked = TrackedRun.open(place.uri, place.artifacts, run.config.name, (_RUN_ID, run.id), start_s)
    config = run.config.model_dump(mode="json")
    files = {"config.yaml": yaml.safe_dump(config, sort_keys=False)}
    tracked.describe(_flat(config), description_of(run), files, training_data(run))
    if missing := labels_of(run).items() - tracked.tags.items():
        tracked.tag(dict(missing))
    return tracked


def _new_commits(run: Run, tracked: TrackedRun) -> list[StepCommit]:
    return [run.commits.read(step) for step in run.commits.steps() if step > _projected(tracked)]


def _projected(tracked: TrackedRun) -> int:
    """The last step that MLflow held when the run was opened, or -1."""
    return int(tracked.tags.get(_PROJECTED, -1))


def _project(run: Run, tracked: TrackedRun, commits: list[StepCommit]) -> Mapping[int, str]:
    """The LoggedModels of all versions, once MLflow holds the commits."""
    model_ids = tracked.models([_model(run, commit) for commit in commits])
    if commits:
        tracked.set_status("RUNNING")
        tracked.log(_step_measurements(commits))
        tracked.log(_credit_measurements(run, commits, model_ids))
        _write_samples(run, tracked, commits)
        tracked.tag({_PROJECTED: str(commits[-1].step)})
    return model_ids


def _write_samples(run: Run, tracked: TrackedRun, commits: list[StepCommit]) -> None:
    """A page of some samples of each step. One that cannot be read is no reason to hold back figures."""
    for commit in commits:
        try:
            samples = samples_of(run, commit)
        except (BatchUnreadable, KeyMissingError, ModelError) as error:
            log.warning("MLflow gets no samples of step %d: %s", commit.step, error)
            continue
        if samples:
            tracked.write_text(
                f"samples/step_{commit.step:06d}.html", page_of(f"step {commit.step}", samples)
            )


def _model(run: Run, commit: StepCommit) -> ExternalModel:
    return ExternalModel(
        step=commit.version,
        name=version_name(commit.version),
        params={
            "hash": commit.weights.hash,
            "parent": "" if commit.weights.parent is None else version_name(commit.weights.parent),
            "format": commit.weights.format,
            "transport": commit.publish.transport,
            "step": str(commit.step),
            "uri": _weights_uri(run, commit.version),
        },
        tags={_RUN_ID: run.id, _VERSION: str(commit.version)},
    )


def _step_measurements(commits: list[StepCommit]) -> Iterator[Measurements]:
    """Every metric of the commits. None is a column of the versions' table, which is to show how each did."""
    for commit in commits:
        yield Measurements(with_small_units(commit.metrics), commit.version, commit.created_at)


def _credit_measurements(
    run: Run, commits: list[StepCommit], model_ids: Mapping[int, str]
) -> Iterator[Measurements]:
    """What the versions that generated the batches of new commits are credited with by all batches."""
    times = {credit.version: commit.created_at for commit in commits for credit in commit.credits}
    credited = credits_of([*_crediting(run, times.keys(), before=commits[0].step), *commits])
    for version, time_s in times.items():
        metrics = with_small_units(credited[version].metrics())
        yield Measurements(metrics, version, time_s, model_ids[version])


def _crediting(run: Run, versions: Set[int], before: int) -> Iterator[StepCommit]:
    """The commits before a step that credit one of the versions: the last ones, as batches go by versions."""
    for step in reversed(range(before)):
        commit = run.commits.read(step)
        if not versions & {credit.version for credit in commit.credits}:
            return
        yield commit


def _project_evaluations(run: Run, tracked: TrackedRun, model_ids: Mapping[int, str], since: int) -> None:
    """What MLflow does not hold yet of the reports of versions from `since` on."""
    known: dict[str, Set[tuple[int, int]]] = {}
    for key in report_keys(run):
        if numbers_in([key]) < [since]:
            continue
        report = read_record(run.store, key, EvaluationReport)
        metric = f"{report.prefix}/avg_at_k"
        if metric not in known:
            known[metric] = tracked.moments(metric)
        is_known = (report.version, milliseconds(report.finished_at)) in known[metric]
        if report.version in model_ids and not is_known:  # else a later call takes it, once it is committed
            _project_evaluation(run, tracked, Path(key).stem, report, model_ids[report.version])


def _project_evaluation(
    run: Run, tracked: TrackedRun, name: str, report: EvaluationReport, model_id: str
) -> None:
    """Answers and samples, then the figures: MLflow holds an evaluation when it has these."""
    tracked.write_table(f"evaluations/{name}.csv", [problem.model_dump() for problem in report.problems])
    if report.samples:
        title = f"{version_name(report.version)} on {report.dataset}"
        tracked.write_text(f"samples/evaluation_{name}.html", page_of(title, report.samples))
    data = evaluation_data(run, report)
    tracked.saw(data)
    rest = report.metrics()
    row = {name: rest.pop(name) for name in (f"{report.prefix}/{part}" for part in _ON_A_VERSIONS_ROW)}
    tracked.log(
        [
            Measurements(rest, report.version, report.finished_at),
            Measurements(row, report.version, report.finished_at, model_id, data),
        ]
    )


def _promote(run: Run, tracked: TrackedRun, newest: int) -> None:
    """Register the best and the newest version, each with its alias where that moves on to it."""
    model_ids, best = tracked.models(), best_version(run)
    aliases = {"newest": newest} if _takes_newest(run, tracked) else {}
    if best is not None and _takes_best(run, tracked):
        aliases["best"] = best
    earlier = {str(version): version for version in aliases_of(run).values()}
    save_aliases(run, earlier | aliases)  # should MLflow fail on the way, what it names is kept all the same
    records = {record.version: record for record in read_ledger(run)}
    for alias, version in (("best", newest if best is None else best), ("newest", newest)):
        row = registered(run, records[version], model_ids[version])
        tracked.register(run.config.name, row, alias if alias in aliases else None)
    save_aliases(run, aliases)


def _takes_newest(run: Run, tracked: TrackedRun) -> bool:
    """Also when a run is told late, after newer ones."""
    holder = _holder(run, tracked, "newest")
    theirs = holder[0].commits.newest() if holder else None
    ours = run.commits.newest()
    return theirs is None or ours is None or ours.created_at >= theirs.created_at


def _takes_best(run: Run, tracked: TrackedRun) -> bool:
    if tracked.aliased(run.config.name, "best") is None:
        return True
    if holder := _holder(run, tracked, "best"):
        return is_better(run, *holder)
    log.warning(
        "the alias best of the registered model %s stays: nothing is known here of the run that it is of; "
        "delete the alias in MLflow for the next run to take it",
        run.config.name,
    )
    return False


def _holder(run: Run, tracked: TrackedRun, alias: str) -> tuple[Run, int] | None:
    """The run and version that an alias points at, unless this state folder does not know the run."""
    tags = tracked.aliased(run.config.name, alias) or {}
    try:
        run_id, version = tags[_RUN_ID], int(tags[_VERSION])
        return run if run_id == run.id else load_run(run_id, run.home), version
    except (KeyError, UserError):
        return None


def _weights_uri(run: Run, version: int) -> str:
    return run.store.uri(run.weights_key(version))


def _flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as `rollout.temperature` -> `1.0`; lists as JSON."""
    flat: dict[str, str] = {}
    for name, value in section.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value if isinstance(value, str) else json.dumps(value)
    return flat


def _alone(run: Run) -> AbstractContextManager[None]:
    """One process at a time projects a run, lest both create the same LoggedModel."""
    return locked(
        run.home.locks / f"{run.id}.mlflow",
        _LOCK_TIMEOUT_S,
        taken=lambda holder: TrackingError(
            f"process {holder} has been projecting run {run.id} for {_LOCK_TIMEOUT_S} s: wait for it"
        ),
    )
