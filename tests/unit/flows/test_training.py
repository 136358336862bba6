"""What the loop hands from stage to stage; the stages themselves are made up here, the commits real."""

from pathlib import Path

import pytest
import ray

from configs.loading import load_config
from flows import training
from infra.home import Home
from tasks.committing.commit import write_commit
from tasks.grading.graded import Graded
from tasks.record.commits import PublishReport
from tasks.record.interval import Interval
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.record.weight_version import WeightVersion
from tasks.rollout.rollouts import Rollouts
from tasks.training.update import Update
from tests.support.command import CONFIGS
from tests.support.versions import version_named

PROMPTS = 5
Asked = tuple[int, int, int]
"""Step, version and cursor of a batch."""


class Generation:
    """The task that generates: notes what it was asked for, at once or beside training."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.beside: list[Asked] = []

    def __call__(self, run: Run, step: int, version: int, cursor: int) -> Rollouts:
        self.asked.append((step, version, cursor))
        return Rollouts(BatchRef(step, "rollouts", "0" * 64), version, cursor + PROMPTS, interval=None)

    def submit(self, run: Run, step: int, version: int, cursor: int) -> "Submitted":
        self.beside.append((step, version, cursor))
        return Submitted(self(run, step, version, cursor))


class Submitted:
    """A future that is there."""

    def __init__(self, rollouts: Rollouts) -> None:
        self._rollouts = rollouts

    def result(self) -> Rollouts:
        return self._rollouts


def grade(run: Run, rollouts: Rollouts) -> Graded:
    return Graded(rollouts.ref, rollouts, {"rollout/tokens": 1.0}, Interval(0.0, 0.0))


def train(run: Run, graded: Graded, version: int) -> Update:
    assert version == graded.step - 1
    return Update(version_named(graded.step))


def publish(run: Run, weights: WeightVersion) -> PublishReport:
    return PublishReport(
        transport="disk",
        transfer_seconds=0.1,
        interval=Interval(0.0, 0.0),
        sent_bytes=0,
        gb_per_second=0.0,
        engine_hashes={},
        probe_abs_diff_max=0.0,
    )


@pytest.fixture
def generation(monkeypatch: pytest.MonkeyPatch) -> Generation:
    """In place of the stages' tasks, and of Ray, where no tracker is."""

    def no_tracker(*_: object, **__: object) -> None:
        raise ValueError("no actor of that name")

    generation = Generation()
    monkeypatch.setattr(ray, "get_actor", no_tracker)
    for name, stage in {
        "generate_rollouts": generation,
        "grade_rollouts": grade,
        "train_step": train,
        "publish_weights": publish,
        "commit_step": write_commit,
        "stage_initial_weights": lambda run: Update(version_named(0)),
        "train_steps": training.train_steps.fn,
    }.items():
        monkeypatch.setattr(training, name, stage)
    return generation


def run_of(folder: Path, mode: str, steps: int) -> Run:
    loop = [f"loop={{mode: {mode}, steps: {steps}}}", "deterministic=false"]
    settings = [*loop, "evaluation={at_start: false, every: null}"]
    return Run(id="unit-1", config=load_config(CONFIGS / "tiny-cpu.yaml", settings), home=Home(folder))


def test_each_step_begins_with_the_problem_after_the_commit_before(
    generation: Generation, tmp_path: Path
) -> None:
    run = run_of(tmp_path, "sync", 3)
    training.train_policy.fn(run)
    assert generation.asked == [(1, 0, 0), (2, 1, 5), (3, 2, 10)]
    assert generation.beside == []
    assert [commit.cursor for commit in run.commits.all()] == [0, 5, 10, 15]


def test_ahead_the_next_batch_begins_after_the_one_that_is_trained_on(
    generation: Generation, tmp_path: Path
) -> None:
    run = run_of(tmp_path, "ahead", 4)
    training.train_policy.fn(run)
    assert generation.asked == [(1, 0, 0), (2, 0, 5), (3, 1, 10), (4, 2, 15)]
    assert generation.beside == generation.asked[1:]
    assert [commit.cursor for commit in run.commits.all()] == [0, 5, 10, 15, 20]


@pytest.mark.parametrize("mode", ["sync", "ahead"])
def test_a_resumed_run_goes_on_from_the_newest_commit(
    generation: Generation, tmp_path: Path, mode: str
) -> None:
    training.train_policy.fn(run_of(tmp_path, mode, 2))
    generation.asked.clear()
    training.train_policy.fn(run_of(tmp_path, mode, 4))
    assert generation.asked[0] == (3, 2, 10)
    assert [cursor for _, _, cursor in generation.asked] == [10, 15]


def test_what_was_generated_ahead_crosses_into_the_next_range(
    generation: Generation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_STEPS_IN_A_FLOW_RUN", 2)
    training.train_policy.fn(run_of(tmp_path, "ahead", 5))
    assert generation.asked == [(1, 0, 0), (2, 0, 5), (3, 1, 10), (4, 2, 15), (5, 3, 20)]
    assert generation.beside == generation.asked[1:]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (range(1, 1), []),
        (range(1, 24), [range(1, 11), range(11, 21), range(21, 24)]),
        (range(8, 13), [range(8, 11), range(11, 13)]),
    ],
)
def test_ranges_end_at_the_same_steps_wherever_a_sitting_begins(steps: range, expected: list[range]) -> None:
    assert list(training.ranges(steps)) == expected
