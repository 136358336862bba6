"""A machine's copy is what was staged: from the delta where one can be relied on, whole where not."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from infra.store.base import StoreError
from tasks.model.bridge.checkpoint import HfCheckpoint
from tasks.publishing.transports.delta_files import write_delta
from tasks.publishing.transports.mirror import Mirrored, forget_mirror, mirror
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


def copied(run: Run, version: int) -> Mirrored:
    """The copy of this machine, made where copies lie by default."""
    return mirror(run, version, run.home.mirror)


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
    first = copied(staged, 0)
    assert_holds(staged, first.folder, 0)
    assert first.sent_bytes == whole(staged, 0)
    for version in (1, 2):
        copy = copied(staged, version)
        assert_holds(staged, copy.folder, version)
        assert 0 < copy.sent_bytes < whole(staged, version)


def test_a_copy_that_is_there_is_not_sent_again_unless_it_is_damaged(staged: Run) -> None:
    copy = copied(staged, 0)
    assert copied(staged, 0).sent_bytes == 0
    file = copy.folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-3] + b"bad")
    assert copied(staged, 0).sent_bytes == whole(staged, 0)
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
    break_it(staged, copied(staged, 0).folder)
    copy = copied(staged, 1)
    assert copy.sent_bytes == whole(staged, 1)
    assert "the delta of version 1 is of no use" in copy.fetched_because
    assert_holds(staged, copy.folder, 1)


def test_a_copy_with_a_broken_index_is_made_anew(staged: Run) -> None:
    damage_parent_index(staged, copied(staged, 0).folder)
    assert copied(staged, 0).sent_bytes == whole(staged, 0)


def test_a_copy_two_versions_behind_is_fetched_whole(staged: Run) -> None:
    copied(staged, 0)
    assert copied(staged, 2).sent_bytes == whole(staged, 2)


def test_the_parent_stays_and_all_else_goes(staged: Run) -> None:
    copied(staged, 0)
    root = copied(staged, 1).folder.parent
    (root / ".000001.partial").mkdir()
    copied(staged, 2)
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["000001", "000002"]


def test_the_parent_of_versions_that_were_refused_stays(staged: Run) -> None:
    for version in (0, 1):
        copied(staged, version)
    second_try = stage_tensors(staged, {"layer": torch.zeros(4096), "norm": torch.ones(4)}, 2, parent=1)
    copied(staged, 2)
    copied(staged, second_try.number)
    assert copied(staged, 1).sent_bytes == 0


def test_a_folder_that_cannot_be_used_is_one_line_that_names_the_field(staged: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"publish\.transport\.mirror .*: free space or permit") as told:
        mirror(staged, 0, tmp_path / "file")
    assert "\n" not in str(told.value)


def test_copies_are_forgotten_with_the_run(staged: Run) -> None:
    root = copied(staged, 0).folder.parent
    forget_mirror(staged, staged.home.mirror)
    assert not root.exists()
    forget_mirror(staged, staged.home.mirror)
