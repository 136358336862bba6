"""An update is trained, checkpointed and staged once, on one trainer, however often it is tried."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tasks.grading.graded import Graded
from tasks.probe.probe import probe_sequences
from tasks.publishing.transports.staged import read_staged
from tasks.record.commits import StepCommit
from tasks.record.interval import Interval
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.record.versions import exported_versions, read_version
from tasks.rollout.rollouts import Rollouts
from tasks.training.group import TrainerLost
from tasks.training.update import Update, initial_update, prune_checkpoints, update_policy
from tests.support.fakes import INITIAL, FakeTrainer, FakeTrainers, hash_of, trained
from tests.support.versions import credit_of

Revise = Callable[..., Run]
MakeCommit = Callable[..., StepCommit]
INSTANT = Interval(0.0, 0.0)


def graded(step: int) -> Graded:
    """A graded batch, known by its reference alone."""
    ref = BatchRef(step, f"unit-1/steps/{step:06d}/graded.parquet", f"{step * 37:064x}")
    return Graded(ref, Rollouts(ref, step - 1, 32 * step, interval=None), {}, INSTANT)


def commit(run: Run, update: Update, make_commit: MakeCommit, batch: BatchRef | None) -> None:
    """Finish the step of an update."""
    run.commits.append(
        make_commit(
            update.weights.step,
            weights=update.weights,
            checkpoint=update.checkpoint,
            batch=batch,
        )
    )


@pytest.fixture
def begun(modelled_run: Run, trainers: FakeTrainers, make_commit: MakeCommit) -> Run:
    """A run whose step 0 is committed, with its trainer up."""
    commit(modelled_run, initial_update(modelled_run), make_commit, None)
    return modelled_run


def train_to(run: Run, step: int, make_commit: MakeCommit) -> list[Update]:
    """Steps 1 to `step`, each committed."""
    updates = []
    for number in range(1, step + 1):
        updates.append(update_policy(run, graded(number), parent=number - 1))
        commit(run, updates[-1], make_commit, graded(number).ref)
    return updates


def test_version_0_is_the_model_itself(modelled_run: Run, trainers: FakeTrainers) -> None:
    update = initial_update(modelled_run)
    weights = update.weights
    assert (weights.step, weights.number, weights.parent, update.checkpoint) == (0, 0, None, None)
    assert (weights.hash, weights.format) == (hash_of(INITIAL), "float32")
    assert update.credits == () and list(update.stages) == ["stage"]
    assert initial_update(modelled_run).weights == weights == read_version(modelled_run, 0)
    staged = read_staged(modelled_run, 0)
    assert staged.probe.sequences == probe_sequences(modelled_run)
    assert staged.probe.logprobs == trainers.newest.score(staged.probe.sequences)


def test_the_probe_is_fixed_and_as_long_as_configured(modelled_run: Run, revised: Revise) -> None:
    sequences = probe_sequences(revised(modelled_run, publish={"probe_sequences": 3}))
    assert len(sequences) == 3
    assert all(len(sequence) > 1 for sequence in sequences)
    assert sequences == probe_sequences(modelled_run)[:3]


def test_an_update_trains_the_parent_on_the_batch_and_stages_what_comes_out(
    begun: Run, trainers: FakeTrainers
) -> None:
    update = update_policy(begun, graded(1), parent=0)
    weights = trained(INITIAL, graded(1).ref)
    assert trainers.newest.applied == [(1, graded(1).ref, 0)]
    assert (update.weights.step, update.weights.number, update.weights.parent) == (1, 1, 0)
    assert update.weights == read_version(begun, 1)
    assert update.weights.hash == hash_of(weights)
    assert update.metrics == {"policy/loss": weights}
    assert read_staged(begun, 1).manifest.hash == hash_of(weights)


def test_training_is_followed_by_staging_with_the_checkpoint(begun: Run, trainers: FakeTrainers) -> None:
    trainer = trainers.newest
    calls = {name: getattr(trainer, name) for name in ("train", "save", "export", "score")}
    at: dict[str, float] = {}

    def noting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            at[name] = time.time()
            return calls[name](*arguments, **named)

        return call

    for name in calls:
        setattr(trainer, name, noting(name))
    before = time.time()
    update = update_policy(begun, graded(1), parent=0)
    train, stage = update.stages["train"], update.stages["stage"]
    assert list(update.stages) == ["train", "stage"]
    assert before <= train.start <= at["train"] <= train.end == stage.start
    assert stage.start <= at["save"] <= at["export"] <= at["score"] <= stage.end <= time.time()


def test_what_the_batch_says_of_its_versions_goes_on_with_the_update(
    begun: Run, trainers: FakeTrainers
) -> None:
    train, credit = trainers.newest.train, credit_of(0, 1)
    trainers.newest.train = lambda *given, **named: train(*given, **named).model_copy(
        update={"credits": (credit,)}
    )
    assert update_policy(begun, graded(1), parent=0).credits == (credit,)


def test_an_update_done_again_is_the_same_update(begun: Run, trainers: FakeTrainers) -> None:
    first, second = (update_policy(begun, graded(1), parent=0) for _ in range(2))
    assert (first.weights, first.checkpoint, first.metrics, first.credits) == (
        second.weights,
        second.checkpoint,
        second.metrics,
        second.credits,
    )
    assert len(trainers.newest.applied) == 1
    assert exported_versions(begun) == [0, 1]


@pytest.mark.parametrize("method", ["train", "save", "export", "keep", "score"])
def test_a_trainer_lost_on_the_way_is_not_replaced_within_the_call(
    begun: Run, trainers: FakeTrainers, method: str
) -> None:
    trainers.newest.faults[method] = TrainerLost(f"a rank died in {method}")
    with pytest.raises(TrainerLost, match=f"a rank died in {method}"):
        update_policy(begun, graded(1), parent=0)
    assert len(trainers.started) == 1
    staged_before_the_loss = [0, 1] if method == "score" else [0]
    assert exported_versions(begun) == staged_before_the_loss

    update = update_policy(begun, graded(1), parent=0)
    assert len(trainers.started) == 2
    assert trainers.newest.applied == [(1, graded(1).ref, 0)]
    assert (update.weights.number, update.weights.hash) == (1, hash_of(trained(INITIAL, graded(1).ref)))
    assert exported_versions(begun) == [0, 1]


def die_after(trainer: FakeTrainer, method: str) -> None:
    """Have the trainer die right after the call, before anybody notices."""
    call = getattr(trainer, method)

    def call_and_die(*arguments: Any, **named: Any) -> Any:
        result = call(*arguments, **named)
        trainer.stop()
        return result

    setattr(trainer, method, call_and_die)


@pytest.mark.parametrize("method", ["train", "save", "export"])
def test_a_trainer_that_dies_between_two_calls_does_not_give_its_place_to_another(
    begun: Run, trainers: FakeTrainers, method: str
) -> None:
    die_after(trainers.newest, method)
    with pytest.raises(TrainerLost):
        update_policy(begun, graded(1), parent=0)
    assert len(trainers.started) == 1

    update = update_policy(begun, graded(1), parent=0)
    assert (update.weights.number, update.weights.hash) == (1, hash_of(trained(INITIAL, graded(1).ref)))


def test_a_retry_that_computes_other_weights_gets_another_version(begun: Run, trainers: FakeTrainers) -> None:
    trainers.newest.faults["score"] = TrainerLost("a rank died after staging")
    with pytest.raises(TrainerLost):
        update_policy(begun, graded(1), parent=0)
    other = update_policy(begun, Graded(graded(2).ref._replace(step=1), graded(1).rollouts, {}, INSTANT), 0)
    assert other.weights.number == 2
    assert read_version(begun, 1).hash == hash_of(trained(INITIAL, graded(1).ref))


@pytest.mark.parametrize(("every", "saved"), [(1, [1, 2, 3]), (2, [2, 3]), (5, [3])])
def test_checkpoints_are_written_every_so_often_and_after_the_last_step(
    begun: Run, revised: Revise, make_commit: MakeCommit, every: int, saved: list[int]
) -> None:
    run = revised(begun, trainer={"checkpoint_every": every})
    updates = train_to(run, 3, make_commit)
    expected = [run.checkpoint_key(step) if step in saved else None for step in (1, 2, 3)]
    assert [update.checkpoint for update in updates] == expected
    assert kept_checkpoints(run) == saved


def kept_checkpoints(run: Run) -> list[int]:
    """Steps of the trainer checkpoints that are in the store."""
    keys = run.store.list(f"{run.id}/checkpoints")
    return sorted({int(key.split("/")[2]) for key in keys})


@pytest.mark.parametrize(("keep", "kept"), [(1, [3]), (2, [2, 3]), (9, [1, 2, 3])])
def test_the_newest_checkpoints_are_kept(
    begun: Run, revised: Revise, make_commit: MakeCommit, keep: int, kept: list[int]
) -> None:
    run = revised(begun, trainer={"keep_checkpoints": keep})
    train_to(run, 3, make_commit)
    for _ in range(2):
        prune_checkpoints(run)
        assert kept_checkpoints(run) == kept


def test_a_run_without_checkpoints_has_nothing_to_prune(run: Run) -> None:
    prune_checkpoints(run)


def test_the_checkpoint_that_the_newest_commit_goes_back_to_is_kept(
    begun: Run, trainers: FakeTrainers, revised: Revise, make_commit: MakeCommit
) -> None:
    """The checkpoint of step 2 was written, its commit not; the resumed run does not write it again."""
    run = revised(begun, trainer={"keep_checkpoints": 1})
    train_to(run, 1, make_commit)
    update_policy(run, graded(2), parent=1)
    trainers.newest.stop()

    run = revised(run, trainer={"checkpoint_every": 5})
    update = update_policy(run, graded(2), parent=1)
    assert update.checkpoint is None
    commit(run, update, make_commit, graded(2).ref)
    prune_checkpoints(run)
    assert 1 in kept_checkpoints(run)
