"""A machine's copy is what was staged: from the delta where one can be relied on, whole where not."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from infra.store.base import StoreError
from tasks.model.bridge.checkpoint import HfCheckpoint
from tasks.publishing.delta import write_delta
from tasks.publishing.mirror import forget_mirror, mirror
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.versions import read_manifest, read_version
from tests.support.versions import stage_tensors


@pytest.fixture
def staged(revised: Callable[..., Run], run: Run) -> Run:
    """Three versions, and the deltas between them."""
    run = revised(run, publish={"transport": "delta"})
    for step in range(3):
        stage_tensors(run, {"layer": torch.arange(4096.0) + step / 1e4, "norm": torch.ones(4)}, step)
        if step:
            write_delta(run, read_version(run, step))
    return run


def assert_holds(run: Run, folder: Path, version: int) -> None:
    """The folder is a checkpoint of the version, with what belongs beside its weights."""
    with HfCheckpoint(folder) as checkpoint:
        held = {name: checkpoint.whole(name) for name in checkpoint.names}
    assert Manifest.of(held) == read_manifest(run, read_version(run, version))
    assert (folder / "config.json").exists()


def whole(run: Run, version: int) -> int:
    """Size of a staged version's folder, bytes."""
    return sum(path.stat().st_size for path in run.store.folder(run.weights_key(version)).iterdir())


def test_the_first_copy_is_fetched_whole_and_the_next_ones_are_made_of_deltas(staged: Run) -> None:
    first = mirror(staged, 0)
    assert_holds(staged, first.folder, 0)
    assert first.sent_bytes == whole(staged, 0)
    for version in (1, 2):
        copy = mirror(staged, version)
        assert_holds(staged, copy.folder, version)
        assert 0 < copy.sent_bytes < whole(staged, version)


def test_a_copy_that_is_there_is_not_sent_again_unless_it_is_damaged(staged: Run) -> None:
    copy = mirror(staged, 0)
    assert mirror(staged, 0).sent_bytes == 0
    file = copy.folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-3] + b"bad")
    assert mirror(staged, 0).sent_bytes == whole(staged, 0)
    assert_holds(staged, copy.folder, 0)


def lose_parent(run: Run, parent: Path) -> None:
    (parent / "model.safetensors").unlink()


def damage_parent_index(run: Run, parent: Path) -> None:
    (parent / "model.safetensors.index.json").write_text("{")


def damage_parent(run: Run, parent: Path) -> None:
    file = parent / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-3] + b"bad")


def lose_delta(run: Run, parent: Path) -> None:
    run.store.remove(f"{run.id}/deltas/000001")


@pytest.mark.parametrize("break_it", [lose_parent, damage_parent_index, damage_parent, lose_delta])
def test_where_a_delta_does_not_lead_to_the_version_all_of_it_is_fetched(
    staged: Run, break_it: Callable[[Run, Path], None]
) -> None:
    break_it(staged, mirror(staged, 0).folder)
    copy = mirror(staged, 1)
    assert copy.sent_bytes == whole(staged, 1)
    assert "the delta of version 1 is of no use" in copy.fetched_because
    assert_holds(staged, copy.folder, 1)


def test_a_copy_with_a_broken_index_is_made_anew(staged: Run) -> None:
    damage_parent_index(staged, mirror(staged, 0).folder)
    assert mirror(staged, 0).sent_bytes == whole(staged, 0)


def test_a_copy_two_versions_behind_is_fetched_whole(staged: Run) -> None:
    mirror(staged, 0)
    assert mirror(staged, 2).sent_bytes == whole(staged, 2)


def test_the_parent_stays_and_all_else_goes(staged: Run) -> None:
    mirror(staged, 0)
    root = mirror(staged, 1).folder.parent
    (root / ".000001.partial").mkdir()
    mirror(staged, 2)
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["000001", "000002"]


def test_the_parent_of_versions_that_were_refused_stays(staged: Run) -> None:
    for version in (0, 1):
        mirror(staged, version)
    second_try = stage_tensors(staged, {"layer": torch.zeros(4096), "norm": torch.ones(4)}, 2, parent=1)
    mirror(staged, 2)
    mirror(staged, second_try.number)
    assert mirror(staged, 1).sent_bytes == 0


def test_a_folder_that_cannot_be_used_is_one_line_that_names_the_field(
    staged: Run, tmp_path: Path, revised: Callable[..., Run]
) -> None:
    (tmp_path / "file").write_text("")
    blocked = revised(staged, publish={"transport": "delta", "mirror": tmp_path / "file"})
    with pytest.raises(StoreError, match=r"publish\.mirror .*: free space or permit writing there") as told:
        mirror(blocked, 0)
    assert "\n" not in str(told.value)


def test_copies_are_forgotten_with_the_run(staged: Run) -> None:
    root = mirror(staged, 0).folder.parent
    forget_mirror(staged)
    assert not root.exists()
    forget_mirror(staged)


def test_the_folder_of_copies_can_be_chosen(staged: Run, tmp_path: Path, revised: Callable[..., Run]) -> None:
    elsewhere = revised(staged, publish={"transport": "delta", "mirror": tmp_path / "fast"})
    assert mirror(elsewhere, 0).folder == tmp_path / "fast" / staged.id / "000000"
