"""What is left to do of a run, and where its things are."""

import pickle
from collections.abc import Callable

from tasks.record.commits import StepCommit
from tasks.record.run import Run


def test_a_new_run_has_all_its_steps_to_do(run: Run) -> None:
    assert run.remaining_steps() == range(1, 4)
    assert not run.is_finished


def test_work_goes_on_after_the_newest_commit(run: Run, make_commit: Callable[..., StepCommit]) -> None:
    run.commits.append(make_commit(0))
    assert list(run.remaining_steps()) == [1, 2, 3]
    run.commits.append(make_commit(1))
    run.commits.append(make_commit(2))
    assert list(run.remaining_steps()) == [3]
    run.commits.append(make_commit(3))
    assert list(run.remaining_steps()) == []
    assert run.is_finished


def test_keys_sort_as_their_numbers(run: Run) -> None:
    assert run.step_key(9, "commit.json") < run.step_key(10, "commit.json")
    assert run.weights_key(99) < run.weights_key(100)
    assert run.checkpoint_key(12) == "unit-1/checkpoints/000012"


def test_a_run_is_the_same_run_after_travelling(run: Run) -> None:
    assert run.commits.steps() == []  # the store was opened before the run was sent
    for travelled in (Run.model_validate_json(run.model_dump_json()), pickle.loads(pickle.dumps(run))):
        assert travelled == run
        assert travelled.store.folder(".") == run.store.folder(".")
