"""The log of finished steps: each once, readable as it was written."""

import math
from collections.abc import Callable

import pytest

from infra.store.base import KeyExistsError, KeyMissingError
from tasks.record.commits import StepCommit
from tasks.record.run import Run


def test_a_run_that_has_not_begun_has_no_commits(run: Run) -> None:
    assert run.commits.newest() is None
    assert run.commits.all() == []
    with pytest.raises(KeyMissingError):
        run.commits.read(0)


def test_commits_are_read_back_in_order(run: Run, make_commit: Callable[..., StepCommit]) -> None:
    written = [make_commit(step) for step in (0, 1, 2)]
    for commit in reversed(written):
        run.commits.append(commit)
    run.store.create(run.step_key(3, "rollouts.parquet"), b"a step that is not finished")
    assert run.commits.steps() == [0, 1, 2]
    assert run.commits.all() == written
    assert run.commits.newest() == written[-1]


def test_a_step_done_again_to_the_same_weights_keeps_its_first_commit(
    run: Run, make_commit: Callable[..., StepCommit]
) -> None:
    run.commits.append(make_commit(1))
    run.commits.append(make_commit(1, created_at=1.0))
    assert run.commits.read(1) == make_commit(1)


@pytest.mark.parametrize("other", [{"hash": "other"}, {"version": 7}])
def test_a_step_is_not_committed_twice(
    run: Run, make_commit: Callable[..., StepCommit], other: dict[str, object]
) -> None:
    run.commits.append(make_commit(1))
    with pytest.raises(KeyExistsError):
        run.commits.append(make_commit(1, **other))
    assert run.commits.read(1) == make_commit(1)


def test_metrics_that_are_not_finite_survive(run: Run, make_commit: Callable[..., StepCommit]) -> None:
    run.commits.append(make_commit(1, metrics={"a": math.inf, "b": math.nan, "c": 0.1}))
    metrics = run.commits.read(1).metrics
    assert metrics["a"] == math.inf and math.isnan(metrics["b"]) and metrics["c"] == 0.1
