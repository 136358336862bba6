"""MLflow as a projection of commits, against a real sqlite MLflow: complete, and never doubled."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from mlflow import MlflowClient
from mlflow.entities import LoggedModel, Metric
from mlflow.entities import Run as MlflowRun
from mlflow.entities.model_registry import ModelVersion

from configs.loading import override
from infra.tracking import TrackingError
from infra.tracking.mlflow_store import TrackedRun
from tasks.record.abandonment import abandon_run
from tasks.record.best import aliases_of
from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import save_report
from tasks.record.lineage import open_run
from tasks.record.pruning import prune_weights
from tasks.record.run import Run
from tasks.record.runs import create_run
from tasks.record.versions import exported_versions
from tasks.reporting import tracking
from tasks.reporting.ledger import read_ledger
from tasks.reporting.report import report_of
from tasks.reporting.tracking import TrackingActor, finish_run, project_run
from tasks.reporting.units import with_small_units
from tests.support.versions import commit_steps, credit_of, stage_tensors

MakeCommit = Callable[..., StepCommit]
MakeReport = Callable[..., EvaluationReport]


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Making the tables takes over a second: made once, copied for each test."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def client(run: Run, empty_database: Path) -> MlflowClient:
    home = run.home
    home.mlflow.mkdir(parents=True)
    shutil.copy(empty_database, home.mlflow / "mlflow.db")
    return MlflowClient(home.mlflow_uri)


def _only_run(client: MlflowClient) -> MlflowRun:
    experiment = client.get_experiment_by_name("unit")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    return found


def _models(client: MlflowClient) -> list[LoggedModel]:
    found = client.search_logged_models([_only_run(client).info.experiment_id])
    return sorted(found, key=lambda model: model.name)


def _everything(client: MlflowClient) -> tuple:
    """All that a projection writes, in a form that can be compared."""
    found = _only_run(client)
    histories = {
        name: [
            (point.step, point.value, point.timestamp)
            for point in client.get_metric_history(found.info.run_id, name)
        ]
        for name in sorted(found.data.metrics)
    }
    models = [
        (
            model.model_id,
            model.name,
            model.params,
            sorted((m.key, m.step, m.value) for m in model.metrics or []),
        )
        for model in _models(client)
    ]
    outputs = found.outputs.model_outputs if found.outputs else []
    return found.data.params, histories, models, sorted(output.model_id for output in outputs)


def _told(model: LoggedModel) -> dict[str, float]:
    """Every metric on the page of a model, the latest of several."""
    ascending = sorted(model.metrics or [], key=lambda metric: metric.timestamp)
    return {metric.key: metric.value for metric in ascending}


def test_every_version_is_a_model_with_the_figures_of_what_it_generated(
    run: Run, client: MlflowClient, make_commit: MakeCommit
) -> None:
    for step in range(4):
        run.commits.append(make_commit(step))
    assert project_run(run) == 3
    models = _models(client)
    assert [model.name for model in models] == ["v000000", "v000001", "v000002", "v000003"]
    for version, model in enumerate(models):
        figures = {name: value for name, value in _told(model).items() if name.startswith("version/")}
        credited = {} if version == 3 else credit_of(version, version + 1).metrics()
        assert figures == with_small_units(credited)
        assert model.params == {
            "hash": f"{version:064x}",
            "parent": f"v{version - 1:06d}" if version else "",
            "format": "float32",
            "transport": "disk",
            "step": str(version),
            "uri": run.store.folder(run.weights_key(version)).as_uri(),
        }
        assert model.tags["overnight.run_id"] == run.id


def test_a_versions_row_begins_with_how_it_did_and_has_no_figures_of_steps(
    run: Run, client: MlflowClient, make_commit: MakeCommit, make_report: MakeReport
) -> None:
    for step in range(3):
        run.commits.append(make_commit(step))
    save_report(run, make_report(0, "held-out", finished_at=1_800_000_001.0))
    project_run(run)
    (data,) = {(metric.dataset_name, metric.dataset_digest) for metric in _evaluated(_models(client)[0])}
    assert data[0] == "held-out" and len(data[1] or "") == 16
    assert [metric.key for metric in _evaluated(_models(client)[0])] == [
        "eval/held-out/avg_at_k",
        "eval/held-out/greedy",
        "eval/held-out/maj_at_k",
        "eval/held-out/pass_at_k",
    ]
    shown = [metric.key for metric in _models(client)[0].metrics or []]  # the columns, in MLflow's order
    assert shown[0] == "version/reward"
    assert not any(name.startswith(("reward/", "divergence/", "publish/")) for name in shown)


def _evaluated(model: LoggedModel) -> list[Metric]:
    of_evaluations = [metric for metric in model.metrics or [] if metric.key.startswith("eval/")]
    return sorted(of_evaluations, key=lambda metric: metric.key)


def test_divergences_are_in_units_that_a_chart_can_show(
    run: Run, client: MlflowClient, make_commit: MakeCommit
) -> None:
    metrics = {
        "divergence/logprob_abs_diff_mean": 2.5e-7,
        "divergence/kl_k1": -2e-6,
        "divergence/kl_k3": 5e-13,
        "divergence/ess": 1.0,
        "publish/probe_abs_diff_max": 1e-6,
    }
    run.commits.append(make_commit(0, metrics=metrics))
    project_run(run)
    assert _only_run(client).data.metrics == pytest.approx(
        {
            **metrics,
            "divergence/logprob_abs_diff_mean_micronats": 0.25,
            "divergence/kl_k1_micronats": -2.0,
            "divergence/kl_k3_piconats": 0.5,
            "publish/probe_abs_diff_max_micronats": 1.0,
        }
    )


def test_metrics_stand_at_their_version_and_time(
    run: Run, client: MlflowClient, make_commit: MakeCommit
) -> None:
    for step in range(3):
        run.commits.append(make_commit(step, version=2 * step, parent=2 * step - 2 if step else None))
    project_run(run)
    run_id = _only_run(client).info.run_id
    expected = {
        "reward/mean": [(2, 0.41), (4, 0.42)],
        "time/train": [(2, 0.5), (4, 0.5)],
        "version/reward": [(0, 0.41), (2, 0.42)],  # at the version that generated the batch
    }
    for name, points in expected.items():
        history = client.get_metric_history(run_id, name)
        assert [(p.step, p.value) for p in history] == points
        assert [p.timestamp for p in history] == [1_800_000_004_500, 1_800_000_009_000]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("mode", ["sync", "ahead"])
def test_ledger_report_and_mlflow_say_the_same_of_every_version(
    run: Run, client: MlflowClient, make_commit: MakeCommit, mode: str, together: bool
) -> None:
    """Also while the run goes on, and where a version generated two batches or shares one."""
    commit_steps(run, make_commit, 1)
    for step in range(1, 5):
        weights = stage_tensors(run, {"norm.weight": torch.full((4,), float(step))}, step)
        generated = [step - 1] if mode == "sync" else sorted({max(0, step - 2), max(0, step - 3)})
        credits = tuple(credit_of(version, step) for version in generated)
        run.commits.append(make_commit(step, weights=weights, credits=credits))
        if not together:
            project_run(run)
            _assert_all_say_the_same(run, client)
    project_run(run)
    _assert_all_say_the_same(run, client)


def _assert_all_say_the_same(run: Run, client: MlflowClient) -> None:
    ledger, models = read_ledger(run), _models(client)
    assert len(ledger) == len(models)
    rewards = [record.reward for record in ledger if record.reward is not None]
    assert len(set(rewards)) == len(rewards) > 0  # no two versions show the same figure
    assert ledger[-1].reward is None
    assert report_of(run).best == ledger[-1]  # nothing is evaluated: the newest
    for record, model in zip(ledger, models, strict=True):
        told = _told(model)
        for name in ("reward", "divergence", "length", "entropy"):
            assert told.get(f"version/{name}") == getattr(record, name)


def test_the_resolved_config_is_params_and_an_artifact(
    run: Run, client: MlflowClient, make_commit: MakeCommit
) -> None:
    run.commits.append(make_commit(0))
    project_run(run)
    found = _only_run(client)
    assert found.data.params["rollout.temperature"] == "1.0"
    assert found.data.params["problems.families"] == '["sum", "product", "remainder"]'
    assert found.info.status == "RUNNING"
    stored = yaml.safe_load(Path(client.download_artifacts(found.info.run_id, "config.yaml")).read_text())
    assert stored == run.config.model_dump(mode="json")


def test_projecting_again_adds_nothing(
    run: Run, client: MlflowClient, make_commit: MakeCommit, make_report: MakeReport
) -> None:
    assert project_run(run) == -1
    for step in range(3):
        run.commits.append(make_commit(step))
        assert project_run(run) == step
    save_report(run, make_report(2, "held-out"))
    project_run(run)
    before = _everything(client)
    assert project_run(run) == 2
    assert _everything(client) == before


@pytest.mark.parametrize("dies_before", ["models", "log", "tag"])
def test_a_crash_in_between_is_caught_up_with(
    run: Run,
    client: MlflowClient,
    make_commit: MakeCommit,
    monkeypatch: pytest.MonkeyPatch,
    dies_before: str,
) -> None:
    for step in range(3):
        run.commits.append(make_commit(step))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TrackedRun, dies_before, die)
        project_run(run)
    assert "overnight.projected_step" not in _only_run(client).data.tags
    assert project_run(run) == 2
    after = _everything(client)
    assert len(_models(client)) == 3
    assert [step for step, _, _ in after[1]["reward/mean"]] == [1, 2]
    assert project_run(run) == 2
    assert _everything(client) == after


@pytest.mark.slow
def test_another_process_continues_the_same_mlflow_run(
    run: Run, client: MlflowClient, make_commit: MakeCommit
) -> None:
    run.commits.append(make_commit(0))
    run.commits.append(make_commit(1))
    project_run(run)
    first = _only_run(client).info.run_id
    run.commits.append(make_commit(2))
    program = (
        "import sys; from tasks.record.run import Run; from tasks.reporting.tracking import project_run\n"
        "print(project_run(Run.model_validate_json(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, run.model_dump_json()], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "2", done.stderr
    assert _only_run(client).info.run_id == first
    assert [model.name for model in _models(client)] == ["v000000", "v000001", "v000002"]


def test_an_evaluation_is_metrics_and_a_table_of_its_version(
    run: Run, client: MlflowClient, make_commit: MakeCommit, make_report: MakeReport
) -> None:
    save_report(run, make_report(1, "held-out"))
    run.commits.append(make_commit(0))
    project_run(run)
    assert "eval/held-out/greedy" not in _only_run(client).data.metrics  # its version is not committed yet
    run.commits.append(make_commit(1))
    project_run(run)
    found = _only_run(client)
    (point,) = client.get_metric_history(found.info.run_id, "eval/held-out/avg_at_k")
    assert (point.step, point.value) == (1, 0.5)
    assert found.data.metrics["eval/held-out/ci_low"] == 0.25
    tables = client.list_artifacts(found.info.run_id, "evaluations")
    assert [item.path for item in tables] == ["evaluations/000001-held-out.csv"]


def test_an_evaluation_that_was_repeated_is_written_again(
    run: Run, client: MlflowClient, make_commit: MakeCommit, make_report: MakeReport
) -> None:
    run.commits.append(make_commit(0))
    save_report(run, make_report(0, "held-out", finished_at=1_800_000_001.0))
    project_run(run)
    save_report(run, make_report(0, "held-out", avg_at_k=0.9, finished_at=1_800_000_002.0))
    project_run(run)
    assert _only_run(client).data.metrics["eval/held-out/avg_at_k"] == 0.9


def _source(registered: ModelVersion) -> str:
    """Name of the folder that a registered version points at."""
    assert registered.source is not None
    return registered.source.rsplit("/", 1)[-1]


def test_a_finished_run_has_plots_and_registered_versions(
    run: Run, client: MlflowClient, make_commit: MakeCommit, make_report: MakeReport
) -> None:
    commit_steps(run, make_commit, 4)
    for version, score in ((0, 0.1), (2, 0.8), (3, 0.7)):
        save_report(run, make_report(version, "held-out", avg_at_k=score))
    finish_run(run)
    finish_run(run)
    found = _only_run(client)
    assert (found.info.status, found.info.end_time) == ("FINISHED", 1_800_000_013_500)
    plots = client.list_artifacts(found.info.run_id, "plots")
    assert [item.path for item in plots] == [
        "plots/divergence.png",
        "plots/phase-times.png",
        "plots/reward.png",
    ]
    assert all(item.file_size is not None and item.file_size > 5000 for item in plots)
    assert _source(client.get_model_version_by_alias("unit", "best")) == "000002"
    assert _source(client.get_model_version_by_alias("unit", "newest")) == "000003"
    assert len(client.search_model_versions("name = 'unit'")) == 2


def test_recording_an_earlier_run_again_moves_no_alias(
    run: Run, client: MlflowClient, make_commit: MakeCommit
) -> None:
    later = run.model_copy(update={"id": "unit-2"})
    for nightly in (run, later, run):
        for step in range(4):
            nightly.commits.append(make_commit(step))
        finish_run(nightly)
    newest = client.get_model_version_by_alias("unit", "newest")
    assert newest.source == later.store.folder(later.weights_key(3)).as_uri()


@pytest.fixture
def registered(
    run: Run, client: MlflowClient, make_commit: MakeCommit, make_report: MakeReport
) -> Callable[..., Run]:
    """Takes runs of the name to their ends: `registered("id", {version: avg_at_k}, "gates.x=1")`."""
    ended = 0

    def go(run_id: str, scores: dict[int, float], *overrides: str, finish: bool = True) -> Run:
        nonlocal ended
        going = create_run(override(run.config, list(overrides)), run.home, run_id)
        for step in range(4):
            weights = stage_tensors(going, {"w": torch.full((2,), step + 0.5)}, step)
            commit = make_commit(step, weights=weights)
            going.commits.append(commit.model_copy(update={"created_at": commit.created_at + 1000 * ended}))
        ended += 1
        for version, score in scores.items():
            settings = going.config.evaluation
            save_report(going, make_report(version, "held-out", avg_at_k=score, settings=settings))
        if finish:
            finish_run(going)
        return going

    return go


def _named(client: MlflowClient, alias: str) -> str:
    """Run and version that an alias points at."""
    source = client.get_model_version_by_alias("unit", alias).source
    run_id, _, version = source.split("/")[-3:]
    return f"{run_id}@{int(version)}"


def test_a_worse_run_does_not_move_best(client: MlflowClient, registered: Callable[..., Run]) -> None:
    first = registered("first", {2: 0.63, 3: 0.6})
    second = registered("second", {0: 0.2, 1: 0.338, 3: 0.33})
    assert (_named(client, "best"), _named(client, "newest")) == ("first@2", "second@3")
    assert (aliases_of(first), aliases_of(second)) == ({"best": 2, "newest": 3}, {"newest": 3})
    registered("equal", {3: 0.63})
    assert (_named(client, "best"), _named(client, "newest")) == ("first@2", "equal@3")
    registered("better", {1: 0.64, 3: 0.5})
    assert (_named(client, "best"), _named(client, "newest")) == ("better@1", "better@3")
    sources = {version.source.split("/")[-3] for version in client.search_model_versions("name = 'unit'")}
    assert sources == {"first", "second", "equal", "better"}


def test_a_run_that_was_evaluated_otherwise_does_not_move_best(
    client: MlflowClient, registered: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    registered("first", {2: 0.6})
    registered("second", {3: 0.9}, "evaluation.temperature=0.5")
    registered("third", {3: 0.9}, "rollout.max_new_tokens=7")
    registered("fourth", {})
    assert (_named(client, "best"), _named(client, "newest")) == ("first@2", "fourth@3")
    assert caplog.text.count("first@2 stays the best version: ") == 2


def test_a_run_that_mlflow_hears_of_late_does_not_move_newest(
    client: MlflowClient, registered: Callable[..., Run]
) -> None:
    late = registered("late", {3: 0.9}, finish=False)
    registered("newer", {3: 0.1})
    finish_run(late)
    assert (_named(client, "best"), _named(client, "newest")) == ("late@3", "newer@3")


def test_best_stays_with_a_run_that_nothing_is_known_of(
    run: Run, client: MlflowClient, registered: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    registered("first", {3: 0.5})
    (run.home.registry / "first.json").unlink()
    registered("second", {3: 0.9})
    assert (_named(client, "best"), _named(client, "newest")) == ("first@3", "second@3")
    assert "delete the alias in MLflow" in caplog.text
    client.delete_registered_model_alias("unit", "best")
    registered("third", {3: 0.4})
    assert _named(client, "best") == "third@3"


def test_an_abandoned_run_does_not_stay_the_best(
    client: MlflowClient, registered: Callable[..., Run]
) -> None:
    cheating = registered("cheating", {3: 1.0})
    abandon_run(cheating)
    finish_run(cheating)
    registered("honest", {3: 0.4})
    assert (_named(client, "best"), _named(client, "newest")) == ("honest@3", "honest@3")


def test_runs_carry_what_they_are_looked_for_by(
    run: Run, client: MlflowClient, registered: Callable[..., Run]
) -> None:
    registered("by-hand", {})
    tags = _only_run(client).data.tags
    assert tags["overnight.model"] == f"folder {run.config.model.path}"
    assert "overnight.night" not in tags
    for night in range(2):
        begun = open_run(run.config, run.home, None)
        registered(begun.id, {3: 0.1 + night}, f"seed={night}")
        mlflow_run = client.search_runs(["1"], f"tags.`overnight.run_id` = '{begun.id}'")[0]
        told = mlflow_run.data.tags
        assert told["overnight.configuration"] == tags["overnight.configuration"]
        assert (told["overnight.lineage"], told["overnight.night"]) == ("unit", str(night))
        assert told.get("overnight.origin") == (str(begun.origin) if night else None)


def _assert_aliases_point_at_weights(run: Run, client: MlflowClient, **versions: int) -> None:
    for alias, version in versions.items():
        registered = client.get_model_version_by_alias("unit", alias)
        assert registered.source == run.store.uri(run.weights_key(version))
        assert version in exported_versions(run)
    assert aliases_of(run) == versions


def test_the_best_version_is_one_whose_weights_are_kept(
    run: Run, client: MlflowClient, make_commit: MakeCommit, make_report: MakeReport
) -> None:
    commit_steps(run, make_commit, 4)
    for version, score in ((0, 0.1), (2, 0.8), (3, 0.7)):
        save_report(run, make_report(version, "held-out", avg_at_k=score))
    for pruned in (1, 2):
        run.store.remove(run.weights_key(pruned))
    finish_run(run)
    _assert_aliases_point_at_weights(run, client, best=3, newest=3)


def test_what_an_alias_names_is_kept_when_the_run_goes_on_and_another_version_is_better(
    run: Run,
    client: MlflowClient,
    make_commit: MakeCommit,
    make_report: MakeReport,
    revised: Callable[..., Run],
) -> None:
    run = revised(run, publish={"keep_versions": 2})
    commit_steps(run, make_commit, 4)
    for version, score in ((1, 0.6), (2, 0.8)):
        save_report(run, make_report(version, "held-out", avg_at_k=score))
    finish_run(run)
    _assert_aliases_point_at_weights(run, client, best=2, newest=3)

    run = revised(run, loop={"steps": 5})
    for step in (4, 5):
        weights = stage_tensors(run, {"norm.weight": torch.full((4,), float(step))}, step)
        run.commits.append(make_commit(step, weights=weights))
        project_run(run)
        save_report(run, make_report(step, "held-out", avg_at_k=0.5 + step / 10))
        prune_weights(run, step)
        _assert_aliases_point_at_weights(run, client, best=2, newest=3)
    assert exported_versions(run) == [0, 2, 3, 4, 5]  # version 1 was once the best; no name points at it

    finish_run(run)
    prune_weights(run, 5)
    _assert_aliases_point_at_weights(run, client, best=5, newest=5)
    assert exported_versions(run) == [0, 4, 5]


def test_a_run_with_steps_to_do_goes_on_after_it_failed(
    run: Run, client: MlflowClient, make_commit: MakeCommit
) -> None:
    run.commits.append(make_commit(0))
    finish_run(run)
    assert _only_run(client).info.status == "RUNNING"
    finish_run(run, failed=True)
    assert _only_run(client).info.status == "FAILED"
    assert client.search_registered_models() == []
    run.commits.append(make_commit(1))
    project_run(run)
    assert _only_run(client).info.status == "RUNNING"


def test_an_abandoned_run_is_killed_also_one_that_had_failed(
    run: Run, client: MlflowClient, make_commit: MakeCommit
) -> None:
    run.commits.append(make_commit(0))
    finish_run(run, failed=True)
    abandon_run(run)
    finish_run(run)
    assert _only_run(client).info.status == "KILLED"
    finish_run(run, failed=True)
    assert _only_run(client).info.status == "KILLED"


def test_a_run_that_failed_before_its_first_commit_is_recorded(run: Run, client: MlflowClient) -> None:
    finish_run(run, failed=True)
    assert _only_run(client).info.status == "FAILED"


def test_what_mlflow_lost_is_projected_later(run: Run, make_commit: MakeCommit, empty_database: Path) -> None:
    home = run.home
    run.commits.append(make_commit(0))
    home.mlflow.write_text("no folder")
    with pytest.raises(TrackingError):
        project_run(run)
    with pytest.raises(TrackingError):
        finish_run(run)
    home.mlflow.unlink()
    home.mlflow.mkdir()
    shutil.copy(empty_database, home.mlflow / "mlflow.db")
    assert project_run(run) == 0


def _project_as_actor(run: Run, answers: "multiprocessing.Queue[tuple[object, int]]") -> None:
    answers.put((TrackingActor(run).project(), os.nice(0)))


def test_the_actor_answers_in_words_when_mlflow_is_down_and_steps_back(
    run: Run, make_commit: MakeCommit
) -> None:
    run.commits.append(make_commit(0))
    run.home.mlflow.write_text("no folder")
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[tuple[object, int]] = context.Queue()
    niceness = os.nice(0)
    actor = context.Process(target=_project_as_actor, args=(run, answers))
    actor.start()
    answer, nice = answers.get(timeout=60)
    actor.join(timeout=10)
    assert str(answer).startswith("TrackingError: MLflow cannot be reached or written")
    assert nice == min(niceness + 10, 19)


def test_the_actor_catches_up(
    run: Run, client: MlflowClient, make_commit: MakeCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "nice", lambda _: 0)  # this process must not stay slow
    actor = TrackingActor(run)
    run.commits.append(make_commit(0))
    run.commits.append(make_commit(1))
    assert actor.project() == 1


def test_two_processes_do_not_project_at_once(
    run: Run, client: MlflowClient, make_commit: MakeCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.commits.append(make_commit(0))
    monkeypatch.setattr(tracking, "_LOCK_TIMEOUT_S", 0.3)
    with tracking._alone(run), pytest.raises(TrackingError, match=r"process \d+ has been projecting"):
        project_run(run)
    assert project_run(run) == 0
