"""A trainer that is gone comes back with the newest commit's weights, or not at all."""

from collections.abc import Callable, Iterable

import pytest

from tasks.record.commits import StepCommit
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.training.errors import StepRefused, TrainerLost
from tasks.training.recovery import ReplayMismatch, ready_trainer
from tests.support.fakes import INITIAL, FakeTrainer, FakeTrainers, hash_of, trained

STEPS = 5
Committed = Callable[[Iterable[int]], Run]


def batch(step: int) -> BatchRef:
    return BatchRef(step, f"unit-1/steps/{step:06d}/graded.parquet", f"{step * 37:064x}")


def weights_after(step: int) -> float:
    """The weights that training on the batches of steps 1 to `step` gives."""
    weights = INITIAL
    for number in range(1, step + 1):
        weights = trained(weights, batch(number))
    return weights


def version_of(step: int) -> int:
    """Not the step's number: an earlier try of each step took one."""
    return 2 * step


@pytest.fixture
def committed(modelled_run: Run, make_commit: Callable[..., StepCommit]) -> Committed:
    """Commits steps 0 to 5, with trainer checkpoints after the given ones."""

    def commit_all(checkpoints: Iterable[int]) -> Run:
        kept = set(checkpoints)
        for step in range(STEPS + 1):
            key = modelled_run.checkpoint_key(step) if step in kept else None
            if key:
                save_checkpoint(modelled_run, key, step)
            modelled_run.commits.append(
                make_commit(
                    step,
                    version=version_of(step),
                    parent=version_of(step - 1) if step else None,
                    hash=hash_of(weights_after(step)),
                    batch=batch(step) if step else None,
                    checkpoint=key,
                )
            )
        return modelled_run

    return commit_all


def save_checkpoint(run: Run, key: str, step: int) -> None:
    trainer = FakeTrainer(run)
    trainer.weights, trainer.step = weights_after(step), step
    trainer.save(key)


def replayed(*steps: int) -> list[tuple[int, BatchRef, int | None]]:
    """What a trainer has applied that replayed these steps, each from its parent's version."""
    return [(step, batch(step), version_of(step - 1)) for step in steps]


def assert_recovered(trainers: FakeTrainers, restored: list[int], replayed_steps: Iterable[int]) -> None:
    """One trainer was started; it went through these checkpoints and replayed these steps to the newest."""
    (trainer,) = trainers.started
    assert [int(key.rpartition("/")[2]) for key in trainer.restored] == restored
    assert trainer.applied == replayed(*replayed_steps)
    assert (trainer.step, trainer.weights) == (STEPS, weights_after(STEPS))


def test_a_run_that_has_not_begun_gets_the_model(modelled_run: Run, trainers: FakeTrainers) -> None:
    assert ready_trainer(modelled_run) is trainers.newest
    assert (trainers.newest.step, trainers.newest.weights) == (0, INITIAL)


def test_a_trainer_that_holds_a_model_is_left_as_it_is(modelled_run: Run, trainers: FakeTrainers) -> None:
    trainer = ready_trainer(modelled_run)
    trainer.train(1, batch(1))
    assert ready_trainer(modelled_run) is trainer
    assert (len(trainers.started), trainers.newest.step) == (1, 1)


def test_a_trainer_without_a_model_is_replaced(modelled_run: Run, trainers: FakeTrainers) -> None:
    empty = trainers.start(modelled_run)
    trainer = ready_trainer(modelled_run)
    assert isinstance(trainer, FakeTrainer) and trainer is not empty and trainer.alive()
    assert empty.lost


def test_the_newest_checkpoint_is_restored(committed: Committed, trainers: FakeTrainers) -> None:
    ready_trainer(committed((3, STEPS)))
    assert_recovered(trainers, restored=[STEPS], replayed_steps=())


def test_committed_batches_after_the_checkpoint_are_replayed_in_order(
    committed: Committed, trainers: FakeTrainers
) -> None:
    ready_trainer(committed((1, 2)))
    assert_recovered(trainers, restored=[2], replayed_steps=(3, 4, 5))


def test_without_checkpoints_the_model_is_loaded_and_all_is_replayed(
    committed: Committed, trainers: FakeTrainers
) -> None:
    ready_trainer(committed(()))
    assert_recovered(trainers, restored=[], replayed_steps=(1, 2, 3, 4, 5))


def test_a_checkpoint_that_cannot_be_read_is_passed_over(
    committed: Committed, trainers: FakeTrainers, caplog: pytest.LogCaptureFixture
) -> None:
    run = committed((2, 4))
    (run.store.folder(run.checkpoint_key(4)) / "state.json").write_text("{")
    ready_trainer(run)
    assert_recovered(trainers, restored=[2], replayed_steps=(3, 4, 5))
    assert "000004 is not a trainer checkpoint" in caplog.text


def test_a_checkpoint_that_was_pruned_is_passed_over(committed: Committed, trainers: FakeTrainers) -> None:
    run = committed((2, 4))
    run.store.remove(run.checkpoint_key(4))
    ready_trainer(run)
    assert_recovered(trainers, restored=[2], replayed_steps=(3, 4, 5))


def test_a_checkpoint_of_another_step_is_passed_over(
    committed: Committed, trainers: FakeTrainers, caplog: pytest.LogCaptureFixture
) -> None:
    run = committed((2, 4))
    save_checkpoint(run, run.checkpoint_key(4), step=3)
    ready_trainer(run)
    assert_recovered(trainers, restored=[4, 2], replayed_steps=(3, 4, 5))
    assert "000004 does not hold step 4" in caplog.text


def test_other_checkpoints_lost_too_leave_the_model(committed: Committed, trainers: FakeTrainers) -> None:
    run = committed((2, 4))
    for step in (2, 4):
        (run.store.folder(run.checkpoint_key(step)) / "state.json").unlink()
    ready_trainer(run)
    assert_recovered(trainers, restored=[], replayed_steps=(1, 2, 3, 4, 5))


def change_checkpoint(run: Run, step: int) -> None:
    """Give the step's checkpoint other weights than were committed."""
    trainer = FakeTrainer(run)
    trainer.weights, trainer.step = weights_after(step) + 1, step
    trainer.save(run.checkpoint_key(step))


@pytest.mark.parametrize("step", [4, STEPS])
def test_other_weights_than_were_committed_are_refused(
    committed: Committed, trainers: FakeTrainers, step: int
) -> None:
    run = committed((step,))
    change_checkpoint(run, step)
    with pytest.raises(ReplayMismatch, match="restoring step 5 of unit-1 gave other weights") as refusal:
        ready_trainer(run)
    assert "\n" not in str(refusal.value)
    assert trainers.newest.restored


def test_a_trainer_that_was_refused_is_not_taken_for_ready(
    committed: Committed, trainers: FakeTrainers
) -> None:
    run = committed((STEPS,))
    change_checkpoint(run, STEPS)
    for _ in range(2):
        with pytest.raises(ReplayMismatch):
            ready_trainer(run)
    assert len(trainers.started) == 2


def test_a_trainer_that_stopped_halfway_through_its_replay_is_not_taken_for_ready(
    committed: Committed, trainers: FakeTrainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = committed((4,))
    monkeypatch.setattr(FakeTrainer, "train", refuse)
    for _ in range(2):
        with pytest.raises(StepRefused):
            ready_trainer(run)
    assert len(trainers.started) == 2


def refuse(*_: object, **__: object) -> None:
    raise StepRefused("gates.max_grad_norm")


def test_a_trainer_lost_while_it_is_restored_is_reported_and_replaced_by_the_next_call(
    committed: Committed, trainers: FakeTrainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = committed((3,))
    with monkeypatch.context() as patched:
        patched.setattr(FakeTrainer, "content_hash", lose)
        with pytest.raises(TrainerLost):
            ready_trainer(run)
    trainer = ready_trainer(run)
    assert len(trainers.started) == 2
    assert trainer.content_hash() == hash_of(weights_after(STEPS))


def lose(trainer: FakeTrainer) -> None:
    trainer.stop()
    raise TrainerLost("a rank died")
