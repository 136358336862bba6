"""What a step's commit says, and what follows from it, once."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from infra.store.base import KeyExistsError
from tasks.committing.commit import write_commit
from tasks.grading.graded import Graded
from tasks.record import interval
from tasks.record.commits import PublishReport, StepCommit
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import save_report
from tasks.record.interval import Interval
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.record.versions import exported_versions
from tasks.record.weight_version import WeightVersion
from tasks.rollout.rollouts import Rollouts
from tasks.training.update import Update
from tests.support.versions import credit_of, version_named

BEGAN, BEFORE, NOW = 50.0, 100.0, 110.0
"""When this sitting began, when step 1 was committed, and the time at which step 2 is."""
PUBLISHED = PublishReport(
    transport="disk",
    transfer_seconds=0.25,
    interval=Interval(108.5, 109.0),
    sent_bytes=1_000_000,
    gb_per_second=0.004,
    engine_hashes={"engine-0": "f" * 64},
    probe_abs_diff_max=2e-6,
)
WEIGHTS = WeightVersion(number=3, parent=1, step=2, hash="f" * 64, bytes=2_000_000, format="fp8_block")
UPDATE = Update(
    weights=WEIGHTS,
    checkpoint="unit-1/checkpoints/000002",
    metrics={"policy/loss": 0.5},
    credits=(credit_of(1, 2),),
    stages={"train": Interval(104.5, 107.5), "stage": Interval(107.5, 108.0)},
)
INITIAL = Update(version_named(0), stages={"stage": Interval(108.0, 108.25)})
GENERATED = Interval(100.0, 104.0)


def rollouts(step: int, generated: Interval | None) -> Rollouts:
    return Rollouts(BatchRef(step, "rollouts.parquet", "1" * 64), 1, cursor=16 * step + 1, interval=generated)


def graded(generated: Interval | None = GENERATED) -> Graded:
    """Step 2, whose batch was generated or else found in the store."""
    ref = BatchRef(2, "graded.parquet", "2" * 64)
    metrics = {"reward/mean": 0.75, "rollout/tokens": 1000.0}
    return Graded(ref, rollouts(2, generated), metrics, Interval(104.0, 104.25))


class Tracker:
    """The tracking actor: counts how often it was told to catch up."""

    def __init__(self) -> None:
        self.told = 0
        self.project = self

    def remote(self) -> None:
        self.told += 1


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is NOW."""
    monkeypatch.setattr(interval, "time", SimpleNamespace(time=lambda: NOW))


@pytest.fixture
def begun(run: Run, make_commit: Callable[..., StepCommit]) -> Run:
    """A run of which step 1 is committed."""
    run.commits.append(make_commit(1, version=1, created_at=BEFORE))
    return run


@pytest.fixture(autouse=True)
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """In place of the Ray actor of the run's namespace."""
    tracker = Tracker()

    def get_actor(name: str, namespace: str) -> Tracker:
        assert (name, namespace) == ("tracker", "overnight-unit-1")
        return tracker

    monkeypatch.setattr(ray, "get_actor", get_actor)
    return tracker


def commit_step(run: Run, generated: Interval | None = GENERATED, **given: Any) -> StepCommit:
    """Commit step 2."""
    return write_commit(run, graded(generated), UPDATE, PUBLISHED, **{"ahead": None, "began": BEGAN, **given})


def test_a_commit_names_everything_that_the_step_is_made_of(begun: Run) -> None:
    commit = commit_step(begun)
    assert begun.commits.read(2) == commit
    assert (commit.step, commit.version, commit.weights) == (2, 3, WEIGHTS)
    assert (commit.checkpoint, commit.batch) == (UPDATE.checkpoint, graded().ref)
    assert commit.cursor == 33  # where its batch ends, and not steps times prompts
    assert commit.seed == begun.config.seed
    assert (commit.publish, commit.credits, commit.created_at) == (PUBLISHED, UPDATE.credits, NOW)
    assert commit.stages == {
        "generate": GENERATED,
        "grade": Interval(104.0, 104.25),
        "train": Interval(104.5, 107.5),
        "stage": Interval(107.5, 108.0),
        "publish": Interval(108.5, 109.0),
    }


def test_metrics_of_every_stage_are_in_the_commit(begun: Run) -> None:
    assert commit_step(begun).metrics == {
        "reward/mean": 0.75,
        "rollout/tokens": 1000.0,
        "rollout/tokens_per_second": 250.0,
        "policy/loss": 0.5,
        "publish/seconds": 0.25,
        "publish/bytes": 2e6,
        "publish/sent_bytes": 1e6,
        "publish/gb_per_second": 0.004,
        "publish/probe_abs_diff_max": 2e-6,
        "time/step": 10.0,
        "time/generate": 4.0,
        "time/grade": 0.25,
        "time/train": 3.0,
        "time/stage": 0.5,
        "time/publish": 0.5,
        "time/overhead": 1.75,
    }


@pytest.mark.parametrize("generated", [None, Interval(104.0, 104.0), Interval(104.0, 103.0)])
def test_a_batch_from_the_store_has_no_speed_nor_one_beside_which_the_clock_was_set(
    begun: Run, generated: Interval | None
) -> None:
    commit = commit_step(begun, generated)
    assert "rollout/tokens_per_second" not in commit.metrics
    assert commit.metrics["time/generate"] == 0


def test_the_initial_weights_have_no_batch(run: Run) -> None:
    commit = write_commit(run, None, INITIAL, PUBLISHED, None, began=105.0)
    assert (commit.batch, commit.cursor, commit.weights.parent, commit.credits) == (None, 0, None, ())
    assert set(commit.stages) == {"stage", "publish"}
    assert not any(name.startswith(("reward/", "rollout/")) for name in commit.metrics)
    assert (commit.metrics["time/step"], commit.metrics["time/overhead"]) == (5.0, 4.25)


def test_the_next_batch_beside_the_step_is_no_overhead_of_it(begun: Run) -> None:
    commit = commit_step(begun, ahead=rollouts(3, Interval(104.25, 108.5)))
    assert commit.metrics["time/overhead"] == 1.0  # after the publish; waiting for the batch is none
    assert commit.stages["generate"] == GENERATED


def test_a_batch_that_was_generated_beside_the_step_before_is_no_part_of_this_one(begun: Run) -> None:
    metrics = commit_step(begun, Interval(94.0, 98.0)).metrics
    assert (metrics["time/step"], metrics["time/generate"], metrics["time/overhead"]) == (10.0, 4.0, 5.75)


@pytest.fixture
def evaluated(begun: Run, make_report: Callable[..., EvaluationReport]) -> Run:
    """The same run, with its version 1 evaluated at 103."""
    save_report(begun, make_report(1, "held-out", finished_at=103.0))
    return begun


def test_an_evaluation_between_two_steps_is_not_the_steps(
    evaluated: Run, revised: Callable[..., Run]
) -> None:
    run = revised(evaluated, evaluation={"every": 1})
    metrics = commit_step(run, Interval(103.5, 104.0)).metrics
    assert (metrics["time/step"], metrics["time/overhead"]) == (7.0, 2.25)


@pytest.mark.parametrize("dataset", ["held-out", "aime"])
def test_an_evaluation_that_the_loop_does_not_wait_for_is_not_taken_off(
    evaluated: Run, revised: Callable[..., Run], make_report: Callable[..., EvaluationReport], dataset: str
) -> None:
    run = revised(evaluated, evaluation={"every": None if dataset == "held-out" else 1})
    save_report(run, make_report(1, "aime", finished_at=108.0))
    assert commit_step(run).metrics["time/step"] == (10.0 if dataset == "held-out" else 7.0)


def test_a_night_between_two_sittings_is_not_the_steps(evaluated: Run) -> None:
    metrics = commit_step(evaluated, began=103.5).metrics
    assert (metrics["time/step"], metrics["time/overhead"]) == (6.5, 1.75)
    assert metrics["time/generate"] == 4.0


def test_a_step_committed_again_keeps_its_first_commit(begun: Run, tracker: Tracker) -> None:
    first = commit_step(begun)
    assert commit_step(begun, began=105.0) == first
    assert begun.commits.steps() == [1, 2]
    assert tracker.told == 2


def test_a_step_is_not_committed_with_other_weights(begun: Run, tracker: Tracker) -> None:
    commit_step(begun)
    other = replace(UPDATE, weights=WEIGHTS.model_copy(update={"number": 4, "hash": "e" * 64}))
    with pytest.raises(KeyExistsError):
        write_commit(begun, graded(), other, PUBLISHED, None, BEGAN)
    assert begun.commits.read(2).version == 3
    assert tracker.told == 1


def test_a_step_is_committed_without_a_tracker(begun: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise ValueError("no actor of that name")

    monkeypatch.setattr(ray, "get_actor", none)
    assert commit_step(begun).step == 2


def test_what_is_no_longer_needed_is_removed_after_the_commit(
    begun: Run, revised: Callable[..., Run]
) -> None:
    run = revised(begun, trainer={"keep_checkpoints": 1}, publish={"keep_versions": 2})
    for version in range(4):
        run.store.create(f"{run.weights_key(version)}/model.safetensors", b"")
    for step in (1, 2):
        run.store.create(f"{run.checkpoint_key(step)}/rank-000.pt", b"")
    commit_step(run)
    assert exported_versions(run) == [0, 2, 3]
    assert run.store.list(f"{run.id}/checkpoints") == [f"{run.checkpoint_key(2)}/rank-000.pt"]
