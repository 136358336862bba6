"""A run that was given up is gone on with by nothing, and says so."""

from collections.abc import Callable

import pytest

from tasks.record.abandonment import Abandonment, abandon_run
from tasks.record.commits import StepCommit
from tasks.record.lineage import open_run
from tasks.record.run import Run
from tasks.record.runs import RunError, create_run, exclusive, load_run, require_not_abandoned
from tasks.record.stored import read_record


def test_no_schedule_and_no_resume_goes_on_with_an_abandoned_run(run: Run) -> None:
    night = open_run(run.config, run.home, None)
    abandon_run(night)
    assert load_run(night.id, run.home).is_abandoned
    assert open_run(run.config, run.home, None).id != night.id
    for go_on in (
        lambda: require_not_abandoned(night),
        lambda: open_run(night.config, run.home, night.id),
        lambda: create_run(night.config, run.home, night.id),
    ):
        with pytest.raises(RunError, match=rf"^run {night.id} was abandoned: start a new run$"):
            go_on()


def test_the_first_to_abandon_a_run_is_kept(run: Run) -> None:
    abandon_run(run)
    first = read_record(run.store, "unit-1/abandoned.json", Abandonment)
    abandon_run(run)
    assert read_record(run.store, "unit-1/abandoned.json", Abandonment) == first


def test_the_state_of_a_run(run: Run, make_commit: Callable[..., StepCommit]) -> None:
    assert run.state == "unfinished"
    with exclusive(run):
        assert run.state == "running"
    for step in range(4):
        run.commits.append(make_commit(step))
    assert run.state == "finished"
    abandon_run(run)
    assert run.state == "abandoned"
    with exclusive(run):
        assert run.state == "running"
