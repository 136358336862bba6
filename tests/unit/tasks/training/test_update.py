"""An update is trained, checkpointed and staged once, on one trainer, however often it is tried."""

from collections.abc import Callable
from typing import Any

import pytest

from tasks.grading.graded import Graded
from tasks.probe.probe import probe_sequences
from tasks.publishing.staged import read_staged
from tasks.record.commits import StepCommit
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.record.versions import exported_versions, read_manifest
from tasks.rollout.rollouts import Rollouts
from tasks.training.group import TrainerLost
from tasks.training.update import Update, initial_update, prune_checkpoints, update_policy
from tests.support.fakes import INITIAL, FakeTrainer, FakeTrainers, hash_of, trained

Revise = Callable[..., Run]
MakeCommit = Callable[..., StepCommit]


def graded(step: int) -> Graded:
    """A graded batch, known by its reference alone."""
    ref = BatchRef(step, f"unit-1/steps/{step:06d}/graded.parquet", f"{step * 37:064x}")
    return Graded(ref, Rollouts(ref, step - 1, 1.0), {}, 0.1)


def commit(run: Run, update: Update, make_commit: MakeCommit, batch: BatchRef | None) -> None:
    """Finish the step of an update."""
    run.commits.append(
        make_commit(
            update.step,
            version=update.version,
            parent_version=update.parent,
            weights_hash=update.weights_hash,
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
    assert (update.step, update.version, update.parent, update.checkpoint) == (0, 0, None, None)
    assert update.weights_hash == hash_of(INITIAL)
    assert initial_update(modelled_run).version == 0
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
    assert (update.step, update.version, update.parent) == (1, 1, 0)
    assert update.weights_hash == read_manifest(begun, 1).hash == hash_of(weights)
    assert update.metrics == {"policy/loss": weights}
    assert update.train_seconds == 0.5
    assert 0 < update.stage_seconds < 10
    assert read_staged(begun, 1).manifest.hash == hash_of(weights)


def test_an_update_done_again_is_the_same_update(begun: Run, trainers: FakeTrainers) -> None:
    first, second = (update_policy(begun, graded(1), parent=0) for _ in range(2))
    assert (first.version, first.weights_hash, first.checkpoint, first.metrics, first.train_seconds) == (
        second.version,
        second.weights_hash,
        second.checkpoint,
        second.metrics,
        second.train_seconds,
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
    assert (update.version, update.weights_hash) == (1, hash_of(trained(INITIAL, graded(1).ref)))
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
    assert (update.version, update.weights_hash) == (1, hash_of(trained(INITIAL, graded(1).ref)))


def test_a_retry_that_computes_other_weights_gets_another_version(begun: Run, trainers: FakeTrainers) -> None:
    trainers.newest.faults["score"] = TrainerLost("a rank died after staging")
    with pytest.raises(TrainerLost):
        update_policy(begun, graded(1), parent=0)
    other = update_policy(begun, Graded(graded(2).ref._replace(step=1), graded(1).rollouts, {}, 0.1), 0)
    assert other.version == 2
    assert read_manifest(begun, 1).hash == hash_of(trained(INITIAL, graded(1).ref))


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
