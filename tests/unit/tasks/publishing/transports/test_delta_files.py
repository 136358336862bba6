"""A delta is small where little changed, gives the version to the bit, and is refused where it does not."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from configs.transport import DeltaTransport
from infra.store.base import StoreError, StoreUnreachable
from tasks.publishing.transports.delta import Delta
from tasks.publishing.transports.delta_files import DeltaUnusable, apply_delta, prune_deltas, write_delta
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.versions import read_version
from tests.support.versions import stage_tensors

DTYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.uint8)
SHAPES: tuple[tuple[int, ...], ...] = ((), (0, 3), (1,), (7,), (5, 3), (64, 32))


def random_tensor(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Any bytes of the dtype, NaN included."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel() * dtype.itemsize
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator).view(dtype).view(shape)


def applied(run: Run, version: int, target: Path) -> dict[str, torch.Tensor]:
    """What the stored delta makes of the parent's folder in the store."""
    staged = read_version(run, version)
    target.mkdir()
    apply_delta(run, staged, run.store.folder(run.weights_key(version - 1)), target)
    return {name: tensor for file in target.glob("*.safetensors") for name, tensor in load_file(file).items()}


def write(run: Run, version: int) -> None:
    write_delta(run, read_version(run, version))


def delta_bytes(run: Run, version: int) -> int:
    return sum(file.stat().st_size for file in delta_files(run, version))


@pytest.fixture
def delta_run(revised: Callable[..., Run], run: Run) -> Run:
    """A run whose deltas take several files."""
    return revised(run, publish={"transport": "delta", "bucket_mb": 0.001})


@pytest.fixture
def staged(delta_run: Run) -> Run:
    """Versions 0 and 1, and the delta between them."""
    for step in (0, 1):
        tensors = {f"layer.{n}": random_tensor(torch.float32, (32, 16), step + 10 * n) for n in range(3)}
        stage_tensors(delta_run, {**tensors, "norm": torch.ones(4)}, step)
    write(delta_run, 1)
    return delta_run


def delta_files(run: Run, version: int) -> list[Path]:
    return sorted(run.store.folder(f"{run.id}/deltas/{version:06d}").glob("*.safetensors"))


@pytest.mark.parametrize("every", [1, 3, 1000])
def test_it_gives_every_tensor_of_the_version_to_the_bit(delta_run: Run, tmp_path: Path, every: int) -> None:
    old = {
        f"{dtype}.{number}": random_tensor(dtype, shape, number)
        for dtype in DTYPES
        for number, shape in enumerate(SHAPES)
    }
    new = {
        name: random_tensor(tensor.dtype, tuple(tensor.shape), 99) if number % every == 1 % every else tensor
        for number, (name, tensor) in enumerate(old.items())
    }
    stage_tensors(delta_run, old, step=0)
    stage_tensors(delta_run, new, step=1)
    write(delta_run, 1)
    assert Manifest.of(applied(delta_run, 1, tmp_path / "copy")) == Manifest.of(new)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 0.6), (torch.bfloat16, 0.15)])
def test_a_small_update_moves_few_bytes(delta_run: Run, dtype: torch.dtype, most: float) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = 0.02 * torch.randn(512, 128, generator=generator)
    step = 1e-6 * torch.randn(512, 128, generator=generator)  # Adam's, at a usual learning rate
    stage_tensors(delta_run, {"layer": weights.to(dtype)}, step=0)
    stage_tensors(delta_run, {"layer": (weights + step).to(dtype)}, step=1)
    write(delta_run, 1)
    assert 0 < delta_bytes(delta_run, 1) < most * read_version(delta_run, 1).bytes


def test_a_delta_is_made_once_and_anew_where_it_was_broken_off(staged: Run) -> None:
    first, second = delta_files(staged, 1)[:2]
    first.write_bytes(b"")
    write(staged, 1)
    assert first.read_bytes() == b""
    staged.store.remove(f"{staged.id}/deltas/000001/index.json")
    write(staged, 1)
    assert first.read_bytes() != b"" and second.exists()


def test_there_is_none_from_a_parent_that_was_pruned(staged: Run, tmp_path: Path) -> None:
    stage_tensors(staged, {"norm": torch.zeros(4)}, step=2)
    staged.store.remove(staged.weights_key(1))
    with pytest.raises(DeltaUnusable, match="delta of version 2"):
        write(staged, 2)
    with pytest.raises(DeltaUnusable):
        applied(staged, 2, tmp_path / "copy")


def truncate(run: Run) -> None:
    file = delta_files(run, 1)[0]
    file.write_bytes(file.read_bytes()[:-50])


def corrupt(run: Run) -> None:
    file = delta_files(run, 1)[0]
    content = bytearray(file.read_bytes())
    content[-20] ^= 0xFF
    file.write_bytes(content)


def lose(run: Run) -> None:
    delta_files(run, 1)[-1].unlink()


def rename(run: Run) -> None:
    file = delta_files(run, 1)[0]
    save_file({f"other.{name}": tensor for name, tensor in load_file(file).items()}, file)


def change_parent(run: Run) -> None:
    file = run.store.folder(run.weights_key(0)) / "model.safetensors"
    tensors = load_file(file)
    tensors["norm"][2] = 1.5  # a tensor that the delta leaves out
    save_file(tensors, file)


def empty_parent(run: Run) -> None:
    (run.store.folder(run.weights_key(0)) / "model.safetensors").unlink()


@pytest.mark.parametrize("break_it", [truncate, corrupt, lose, rename, change_parent, empty_parent])
def test_what_is_not_to_be_relied_on_is_refused(
    staged: Run, tmp_path: Path, break_it: Callable[[Run], None]
) -> None:
    break_it(staged)
    with pytest.raises(DeltaUnusable, match="delta of version 1"):
        applied(staged, 1, tmp_path / "copy")


def test_deltas_of_earlier_versions_are_removed(staged: Run) -> None:
    stage_tensors(staged, {"norm": torch.zeros(4)}, step=2)
    prune_deltas(staged, current=1)
    assert delta_files(staged, 1)
    prune_deltas(staged, current=2)
    assert not delta_files(staged, 1)


def test_the_first_version_has_none(staged: Run) -> None:
    write(staged, 0)
    assert not delta_files(staged, 0)


def test_an_unreadable_parent_is_no_reason_to_stop(staged: Run, caplog: pytest.LogCaptureFixture) -> None:
    stage_tensors(staged, {"norm": torch.zeros(4)}, step=2)
    (staged.store.folder(staged.weights_key(1)) / "model.safetensors").write_bytes(b"half")
    Delta(DeltaTransport()).prepare(staged, read_version(staged, 2), held=True)
    assert not delta_files(staged, 2) and "delta of version 2 is of no use" in caplog.text


def test_an_outage_of_the_store_is_told_as_one(
    staged: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(key: str) -> bytes:
        raise StoreUnreachable("no answer")

    second = read_version(staged, 1)
    monkeypatch.setattr(staged.store, "read", fail)
    (tmp_path / "copy").mkdir()
    with pytest.raises(StoreError, match="no answer"):
        apply_delta(staged, second, tmp_path, tmp_path / "copy")
