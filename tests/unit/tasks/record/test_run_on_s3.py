"""A run on S3 goes on from any machine, and what is pruned is gone on the server and here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from configs.loading import override
from infra.home import Home
from infra.store.base import KeyMissingError
from tasks.grading.graded import Graded
from tasks.publishing.transports.staged import read_staged
from tasks.record.commits import StepCommit
from tasks.record.interval import Interval
from tasks.record.pruning import prune_weights
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.record.versions import exported_versions
from tasks.rollout.rollouts import Rollouts
from tasks.training.recovery import ready_trainer
from tasks.training.update import initial_update, prune_checkpoints, update_policy
from tests.support.fakes import FakeTrainers
from tests.support.s3 import S3Server

pytestmark = pytest.mark.slow
STEPS = 4


def graded(step: int) -> Graded:
    """A graded batch, known by its reference alone."""
    ref = BatchRef(step, f"unit-1/steps/{step:06d}/graded.parquet", f"{step:064x}")
    return Graded(ref, Rollouts(ref, step - 1, 32 * step, interval=None), {}, Interval(0.0, 0.0))


@pytest.fixture
def here(
    modelled_run: Run, s3: S3Server, trainers: FakeTrainers, make_commit: Callable[..., StepCommit]
) -> Run:
    """A run on S3 whose steps are done, with checkpoints after each."""
    settings = [f"store={s3.config().model_dump_json()}", "publish.keep_versions=2"]
    run = Run(id="unit-1", config=override(modelled_run.config, settings), home=modelled_run.home)
    for step in range(STEPS + 1):
        update = update_policy(run, graded(step), step - 1) if step else initial_update(run)
        changes = {"weights": update.weights, "checkpoint": update.checkpoint}
        run.commits.append(make_commit(step, batch=graded(step).ref if step else None, **changes))
    return run


@pytest.fixture
def there(here: Run, tmp_path: Path) -> Run:
    """The run as another machine has it."""
    return Run(id=here.id, config=here.config, home=Home(tmp_path / "there"))


def test_another_machine_restores_the_checkpoint_and_reads_the_weights(
    here: Run, there: Run, trainers: FakeTrainers
) -> None:
    weights = trainers.newest.weights
    trainers.newest.stop()
    assert ready_trainer(there) is trainers.newest
    assert (trainers.newest.step, trainers.newest.weights, trainers.newest.applied) == (STEPS, weights, [])
    (restored,) = trainers.newest.restored
    assert there.store.folder(restored).is_relative_to(there.home.s3)
    assert there.store.folder(restored).is_dir()
    ours, theirs = (read_staged(run, STEPS).local() / "model.safetensors" for run in (here, there))
    assert ours != theirs and ours.read_bytes() == theirs.read_bytes()


def test_what_is_pruned_is_gone_here_and_for_others(here: Run, there: Run) -> None:
    here.store.remove(here.weights_key(1))
    half = f"{here.weights_key(1)}/model.safetensors"
    here.store.create(half, b"left by an upload that was killed")
    assert exported_versions(there) == [0, 2, 3, 4]
    for _ in range(2):
        prune_weights(here, STEPS)
        prune_checkpoints(here)
        assert exported_versions(there) == [0, 3, 4] and not here.store.exists(half)
    kept = here.store.list_folders(f"{here.id}/checkpoints")
    assert kept == [here.checkpoint_key(step) for step in (3, 4)]
    for key in (here.weights_key(2), here.checkpoint_key(1)):
        assert not here.store.folder(key).exists()
        with pytest.raises(KeyMissingError):
            there.store.local(key)
