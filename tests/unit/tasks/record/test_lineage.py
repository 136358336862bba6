"""Nights of a name go on from each other; an interrupted one is continued, and no run started by hand is."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from configs.loading import override
from configs.run import RunConfig
from infra.home import Home
from tasks.record import lineage
from tasks.record.abandonment import abandon_run
from tasks.record.busy import busy_runs
from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import save_report
from tasks.record.lineage import nights_of, open_run
from tasks.record.night import Origin
from tasks.record.pruning import prune_weights
from tasks.record.run import Run
from tasks.record.runs import RunError, create_run, exclusive, load_run, passing_run, revise_run
from tasks.record.versions import exported_versions, read_version
from tests.support.versions import commit_steps, stage_tensors

Night = Callable[..., Run]


@pytest.fixture
def config(run: Run) -> RunConfig:
    return run.config


@pytest.fixture
def home(run: Run) -> Home:
    return run.home


@pytest.fixture
def through(make_commit: Callable[..., StepCommit], make_report: Callable[..., EvaluationReport]) -> Night:
    """Takes a run through its steps, its last version and others evaluated: `through(run, {2: avg_at_k})`."""

    def take(run: Run, scores: dict[int, float]) -> Run:
        steps = run.config.loop.steps
        commit_steps(run, make_commit, steps + 1)
        for version, accuracy in ({steps: 0.0} | scores).items():
            settings = run.config.evaluation
            save_report(run, make_report(version, "held-out", avg_at_k=accuracy, settings=settings))
        return run

    return take


def origin_of(run: Run, version: int) -> Origin:
    return Origin(run_id=run.id, version=version, hash=read_version(run, version).hash, format="float32")


def next_night(run: Run, *overrides: str) -> Run:
    assert run.night is not None
    return open_run(override(run.night.asked, list(overrides)), run.home, None)


def place(run: Run) -> tuple[int, int]:
    """Number of the night, and its seed."""
    assert run.night is not None
    return run.night.number, run.config.seed


def test_nights_go_on_from_each_other_with_a_seed_of_their_own(
    home: Home, config: RunConfig, through: Night
) -> None:
    asked = override(config, ["seed=7"])
    first = open_run(asked, home, None)
    assert (place(first), first.origin, first.config) == ((0, 7), None, asked)
    second = next_night(through(first, {0: 0.1, 2: 0.4, 3: 0.3}))
    assert (place(second), second.origin) == ((1, 8), origin_of(first, 2))
    third = next_night(through(second, {0: 0.4, 3: 0.6}))
    assert (place(third), third.origin) == ((2, 9), origin_of(second, 3))
    assert third.night is not None and third.night.asked == asked
    assert [load_run(run.id, home) for run in (first, second, third)] == nights_of("unit", home)


def test_a_worse_night_is_not_gone_on_from_unless_the_newest_is_wanted(
    home: Home, config: RunConfig, through: Night
) -> None:
    first = through(open_run(config, home, None), {0: 0.1, 3: 0.4})
    second = through(next_night(first), {0: 0.4, 3: 0.2})
    for _ in range(2):
        third = next_night(second)
        assert third.origin == origin_of(first, 3)
        through(third, {0: 0.4, 1: 0.4, 3: 0.3})
    fifth = next_night(third, "night.begins_from=newest")
    assert fifth.origin == origin_of(third, 3)
    through(fifth, {0: 0.3, 3: 0.35})
    sixth = next_night(fifth, "night.begins_from=best")
    assert (place(sixth), sixth.origin) == ((5, 5), origin_of(first, 3))


def test_a_night_can_begin_anew(home: Home, config: RunConfig, through: Night) -> None:
    first = through(open_run(config, home, None), {3: 0.4})
    second = next_night(first, "night.begins_from=anew")
    assert (place(second), second.origin) == ((1, 1), None)


def test_another_model_begins_anew_in_the_same_lineage(home: Home, config: RunConfig, through: Night) -> None:
    through(open_run(config, home, None), {3: 0.4})
    second = open_run(override(config, ["model.path=/another"]), home, None)
    assert (place(second), second.origin) == ((1, 1), None)


def test_new_evaluation_settings_compare_a_night_with_what_it_began_from(
    home: Home, config: RunConfig, through: Night
) -> None:
    """The second night is harder on both versions, and the third finds a better one by its own figures."""
    first = through(open_run(config, home, None), {3: 0.9})
    second = through(next_night(first, "evaluation.temperature=2.0"), {0: 0.3, 3: 0.2})
    third = next_night(second, "evaluation.temperature=2.0")
    assert third.origin == origin_of(first, 3)
    through(third, {0: 0.3, 3: 0.4})
    assert next_night(third).origin == origin_of(third, 3)


def test_an_interrupted_night_is_continued_however_its_settings_were_revised(
    home: Home, config: RunConfig, through: Night
) -> None:
    first = through(open_run(config, home, None), {3: 0.4})
    second = next_night(first)
    assert next_night(first) == next_night(first, "night.overlap=cancel") == second
    revised = revise_run(second, ["gates.max_grad_norm=2.0"])
    assert next_night(first) == revised
    assert next_night(first, "rollout.temperature=0.9").origin == origin_of(first, 3)


def test_an_abandoned_night_is_neither_continued_nor_gone_on_from(
    home: Home, config: RunConfig, make_commit: Callable[..., StepCommit], through: Night
) -> None:
    first = open_run(config, home, None)
    commit_steps(first, make_commit, 2)
    abandon_run(first)
    second = next_night(first)
    assert (place(second), second.origin) == ((1, 1), None)
    assert next_night(through(second, {3: 0.1})).origin == origin_of(second, 3)


def test_a_night_that_ended_before_its_last_evaluation_is_continued(
    home: Home,
    config: RunConfig,
    make_commit: Callable[..., StepCommit],
    make_report: Callable[..., EvaluationReport],
) -> None:
    """Else its last version could not be the best, and the work of the night would be lost."""
    first = open_run(config, home, None)
    commit_steps(first, make_commit, 4)
    save_report(first, make_report(0, "held-out", avg_at_k=0.1))
    assert first.is_finished and next_night(first) == first
    save_report(first, make_report(3, "held-out", avg_at_k=0.4))
    assert next_night(first).origin == origin_of(first, 3)


def test_a_finished_night_can_be_taken_out_of_the_lineage(
    home: Home, config: RunConfig, through: Night
) -> None:
    first = through(open_run(config, home, None), {3: 0.4})
    second = through(next_night(first), {0: 0.4, 3: 0.9})
    abandon_run(second)
    third = through(next_night(first), {0: 0.4, 3: 0.3})
    assert (place(third), third.origin) == ((2, 2), origin_of(first, 3))
    abandon_run(first)
    assert next_night(third).origin == origin_of(third, 0)


def test_runs_that_were_started_by_hand_are_no_nights(home: Home, config: RunConfig, through: Night) -> None:
    through(create_run(config, home, "by-hand-and-finished"), {3: 0.9})
    by_hand = create_run(config, home, "by-hand")
    with passing_run(config, home) as passing, exclusive(by_hand), exclusive(passing):
        night = open_run(config, home, None)
        with exclusive(night):  # nobody is at work on it
            assert (place(night), night.origin) == ((0, 0), None)
            assert open_run(config, home, "by-hand") == by_hand


def test_one_lineage_does_not_touch_another(home: Home, config: RunConfig) -> None:
    other = open_run(override(config, ["name=other"]), home, None)
    assert place(open_run(config, home, None)) == place(other) == (0, 0)


OPEN = """
import sys
from pathlib import Path
from configs.run import RunConfig
from infra.home import Home
from tasks.record.lineage import open_run
print(open_run(RunConfig.model_validate_json(sys.argv[1]), Home(Path(sys.argv[2])), None).id)
"""


@pytest.mark.slow
def test_nights_that_begin_at_once_are_one(home: Home, config: RunConfig) -> None:
    command = [sys.executable, "-c", OPEN, config.model_dump_json(), str(home.root)]
    with ThreadPoolExecutor(3) as pool:
        ids = set(pool.map(lambda _: subprocess.check_output(command, text=True), range(3)))
    assert len(ids) == 1


def test_what_a_night_began_from_is_kept(
    home: Home, config: RunConfig, make_commit: Callable[..., StepCommit], through: Night
) -> None:
    first = through(open_run(override(config, ["publish.keep_versions=2"]), home, None), {2: 0.4})
    assert next_night(first, "night.begins_from=newest").origin == origin_of(first, 3)
    longer = revise_run(first, ["loop.steps=6"])
    for step in (4, 5, 6):
        weights = stage_tensors(longer, {"norm.weight": torch.full((4,), float(step))}, step)
        longer.commits.append(make_commit(step, weights=weights))
    prune_weights(longer, 6)
    assert exported_versions(longer) == [0, 2, 3, 5, 6]


def test_a_version_without_weights_is_not_begun_from(home: Home, config: RunConfig, through: Night) -> None:
    first = through(open_run(config, home, None), {3: 0.4})
    second = through(next_night(first), {0: 0.4, 3: 0.3})
    first.store.remove(first.weights_key(3))
    assert next_night(second).origin == origin_of(second, 0)  # the same weights
    second.store.remove(second.weights_key(3))
    with pytest.raises(RunError, match=rf"^night.begins_from: the weights of {second.id}@3 are gone"):
        next_night(second, "night.begins_from=newest", "seed=1")


def test_seeds_are_a_function_of_the_nights_place(home: Home, config: RunConfig, tmp_path: Path) -> None:
    there = Home(tmp_path / "there")
    assert place(open_run(config, home, None)) == place(open_run(config, there, None))


def test_to_look_for_the_next_night_is_not_to_work_on_a_run(config: RunConfig, home: Home) -> None:
    with lineage._alone(config.name, home):
        assert busy_runs(home) == []
