"""Staging gives weights their number once, wherever an earlier try stopped; what is precious is kept."""

import json
from collections.abc import Callable

import pytest
from safetensors.torch import load_file

from infra.store.base import KeyMissingError
from tasks.publishing.transports.staged import StagedVersion, read_staged
from tasks.record.manifest import Manifest
from tasks.record.pruning import prune_weights
from tasks.record.run import Run
from tasks.record.versions import exported_versions, read_version, stage_version
from tasks.training.group import TrainerLost
from tasks.training.staging import stage
from tests.support.fakes import FakeTrainer, hash_of

PROBE = [[1, 2, 3], [4, 5]]


def trainer_with(run: Run, weights: float) -> FakeTrainer:
    trainer = FakeTrainer(run)
    trainer.weights = weights
    return trainer


def stage_weights(
    run: Run, weights: float, step: int, parent: int | None, trainer: FakeTrainer | None = None
) -> StagedVersion:
    staged = stage(run, trainer or trainer_with(run, weights), step, parent, PROBE)
    return read_staged(run, staged.number)


def folders(run: Run) -> set[str]:
    """What lies below the run's weights, leftovers included."""
    return {path.name for path in run.store.folder(f"{run.id}/weights").iterdir()}


def test_a_staged_version_is_all_that_a_publish_needs(run: Run) -> None:
    staged = stage_weights(run, 3.0, step=0, parent=None)
    assert (staged.version, staged.manifest.hash) == (0, hash_of(3.0))
    assert Manifest.of(load_file(staged.folder / "model.safetensors")) == staged.manifest
    assert staged.probe.sequences == PROBE
    assert staged.probe.logprobs == trainer_with(run, 3.0).score(PROBE)
    assert read_staged(run, 0) == staged
    assert folders(run) == {"000000"}


def test_the_same_weights_again_are_the_same_version(run: Run) -> None:
    first = stage_weights(run, 3.0, step=0, parent=None)
    assert stage_weights(run, 3.0, step=0, parent=None) == first
    assert folders(run) == {"000000"}


def test_other_weights_are_the_next_version_and_leave_the_first(run: Run) -> None:
    stage_weights(run, 3.0, step=0, parent=None)
    stage_weights(run, 4.0, step=1, parent=0)
    second_try = stage_weights(run, 5.0, step=1, parent=0)
    assert second_try.version == 2
    assert [read_staged(run, version).manifest.hash for version in range(3)] == [
        hash_of(3.0),
        hash_of(4.0),
        hash_of(5.0),
    ]
    assert stage_weights(run, 4.0, step=1, parent=0).version == 1


def test_a_try_that_died_during_the_export_leaves_no_number_and_no_folder(run: Run) -> None:
    trainer = trainer_with(run, 3.0)
    trainer.faults["export"] = TrainerLost("a rank died")
    with pytest.raises(TrainerLost):
        stage_weights(run, 3.0, 0, None, trainer)
    half = run.store.scratch()
    (half / "model.safetensors").write_bytes(b"half of it")
    run.store.put(run.weights_key(0), half)
    with pytest.raises(KeyMissingError):
        read_version(run, 0)
    assert stage_weights(run, 3.0, step=0, parent=None).manifest.hash == hash_of(3.0)
    assert folders(run) == {"000000"}


def test_a_try_that_died_between_its_number_and_its_folder_is_finished_by_the_next(run: Run) -> None:
    manifest = trainer_with(run, 3.0).export()
    assert stage_version(run, manifest, None, 0).number == 0
    with pytest.raises(KeyMissingError):
        read_staged(run, 0)
    staged = stage_weights(run, 3.0, step=0, parent=None)
    assert (staged.version, staged.manifest) == (0, manifest)
    assert folders(run) == {"000000"}


def test_a_number_whose_weights_never_came_is_not_given_to_others(run: Run) -> None:
    stage_version(run, Manifest.of({}), None, 0)
    assert stage_weights(run, 3.0, step=0, parent=None).version == 1
    assert exported_versions(run) == [1]


def test_a_try_that_died_before_its_probe_is_finished_by_the_next(run: Run) -> None:
    trainer = trainer_with(run, 3.0)
    trainer.faults["score"] = TrainerLost("a rank died")
    with pytest.raises(TrainerLost):
        stage_weights(run, 3.0, 0, None, trainer)
    with pytest.raises(KeyMissingError):
        read_staged(run, 0)
    staged = stage_weights(run, 3.0, step=0, parent=None)
    assert (staged.version, staged.probe.logprobs) == (0, trainer_with(run, 3.0).score(PROBE))


def test_exported_versions_are_the_finished_folders(run: Run) -> None:
    assert exported_versions(run) == []
    for step in range(3):
        stage_weights(run, float(step), step, step - 1 if step else None)
    trainer_with(run, 9.0).export()
    run.store.remove(run.weights_key(1))
    assert exported_versions(run) == [0, 2]
    with pytest.raises(KeyMissingError):
        read_staged(run, 1)


@pytest.fixture
def six_versions(run: Run) -> Run:
    """A run with versions 0 to 5."""
    for step in range(6):
        stage_weights(run, float(step), step, step - 1 if step else None)
    return run


@pytest.mark.parametrize(
    ("keep", "current", "kept"),
    [
        (None, 5, [0, 1, 2, 3, 4, 5]),
        (2, 5, [0, 4, 5]),
        (4, 5, [0, 2, 3, 4, 5]),
        (9, 5, [0, 1, 2, 3, 4, 5]),
        (2, 3, [0, 3, 4, 5]),  # 4 and 5 are staged and not yet committed
    ],
)
def test_the_first_the_current_and_the_newest_versions_are_kept(
    six_versions: Run, revised: Callable[..., Run], keep: int | None, current: int, kept: list[int]
) -> None:
    run = revised(six_versions, publish={"keep_versions": keep})
    for _ in range(2):
        prune_weights(run, current)
        assert exported_versions(run) == kept


def test_what_was_pruned_is_still_in_the_record(six_versions: Run, revised: Callable[..., Run]) -> None:
    run = revised(six_versions, publish={"keep_versions": 2})
    prune_weights(run, 5)
    assert read_version(run, 1).hash == hash_of(1.0)
    assert json.loads(run.store.read(f"{run.id}/versions/000001/probe.json"))["sequences"] == PROBE
