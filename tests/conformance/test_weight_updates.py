"""Bringing weights to an engine: by disk, by process group, and what must be refused."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from infra.engines.checksum import tensor_hash
from infra.engines.client import EngineError, EngineRefused, SamplingParams
from infra.process import free_port
from infra.process_group import join_group, leave_group
from tests.support.engines import TINY_MODEL, ServedFolder, altered_copy, reference_logprobs

SEQUENCE = [3, 50, 100, 7, 9, 200]
GROUP = "conformance"

pytestmark = pytest.mark.slow


def _assert_serves(engine: ServedFolder, folder: Path) -> None:
    """The engine gives the folder's log-probabilities and holds its tensors, all of them and no other."""
    scores = torch.tensor(engine.client.score([SEQUENCE])[0])
    torch.testing.assert_close(scores, reference_logprobs(folder, SEQUENCE), atol=1e-5, rtol=0)
    tensors = load_file(folder / "model.safetensors")
    (rank,) = engine.client.checksums()
    assert rank.checksums == {name: tensor_hash(tensor) for name, tensor in tensors.items()}


def test_an_update_from_disk_changes_what_is_served(engine: ServedFolder, changed: Path) -> None:
    _assert_serves(engine, engine.folder)
    engine.client.update_from_disk(changed)
    _assert_serves(engine, changed)
    assert engine.client.model_info().model_path == str(changed)


def test_another_architecture_is_refused_and_the_old_weights_go_on(
    engine: ServedFolder, tiny_qwen3: Path
) -> None:
    other = tiny_qwen3 if engine.folder == TINY_MODEL else TINY_MODEL
    with pytest.raises(EngineRefused, match="ForCausalLM"):
        engine.client.update_from_disk(other)
    _assert_serves(engine, engine.folder)


def test_an_incomplete_checkpoint_is_refused(engine: ServedFolder, tmp_path: Path) -> None:
    lacking = altered_copy(
        engine.folder, tmp_path / "lacking", lambda name, t: None if name == "model.norm.weight" else t * 2
    )
    with pytest.raises(EngineRefused, match=r"model\.norm\.weight"):
        engine.client.update_from_disk(lacking)
    _assert_serves(engine, engine.folder)


def test_a_tensor_of_another_shape_is_refused(engine: ServedFolder, tmp_path: Path) -> None:
    misshapen = altered_copy(
        engine.folder,
        tmp_path / "misshapen",
        lambda name, t: t[:-1] if name == "model.norm.weight" else t * 2,
    )
    with pytest.raises(EngineRefused, match=r"model\.norm\.weight has shape"):
        engine.client.update_from_disk(misshapen)
    _assert_serves(engine, engine.folder)


def test_a_torn_file_is_refused(engine: ServedFolder, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    shutil.copytree(engine.folder, torn)
    file = torn / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(EngineRefused, match="not a whole safetensors file"):
        engine.client.update_from_disk(torn)
    _assert_serves(engine, engine.folder)


def test_an_update_over_a_process_group_changes_what_is_served(engine: ServedFolder, changed: Path) -> None:
    tensors = load_file(changed / "model.safetensors")
    engine.client.pause()
    engine.client.begin_update()
    with _group(engine) as group:
        _broadcast(engine, group, tensors)
    engine.client.end_update()
    engine.client.resume()
    _assert_serves(engine, changed)


def test_a_misfit_over_a_process_group_is_refused_and_the_group_lives_on(
    engine: ServedFolder, changed: Path
) -> None:
    tensors = load_file(changed / "model.safetensors")
    name = "model.norm.weight"
    with _group(engine) as group:
        with pytest.raises(EngineRefused, match="names are not of the served model"):
            _broadcast(engine, group, {**tensors, "model.none.weight": torch.ones(3)})
        with pytest.raises(EngineRefused, match="has shape"):
            _broadcast(engine, group, {**tensors, name: tensors[name][:-1].clone()})
        _assert_serves(engine, engine.folder)
        _broadcast(engine, group, tensors)
    _assert_serves(engine, changed)


def test_a_group_that_is_gone_is_refused(engine: ServedFolder) -> None:
    with _group(engine):
        pass
    with pytest.raises(EngineRefused, match="not in group"):
        engine.client.update_from_group(["model.norm.weight"], ["float32"], [[1]], GROUP)
    with pytest.raises(EngineRefused, match="not in group"):
        engine.client.destroy_update_group(GROUP)


def test_sessions_open_and_close_once(engine: ServedFolder) -> None:
    engine.client.begin_update()
    with pytest.raises(EngineRefused, match="already open"):
        engine.client.begin_update()
    engine.client.end_update()
    with pytest.raises(EngineRefused, match="no weight-update session"):
        engine.client.end_update()


def test_broken_weights_are_not_served_as_numbers(engine: ServedFolder, tmp_path: Path) -> None:
    broken = altered_copy(engine.folder, tmp_path / "broken", lambda name, t: t * torch.nan)
    engine.client.update_from_disk(broken)
    with pytest.raises(EngineError):
        engine.client.score([SEQUENCE])
    with pytest.raises(EngineError):
        engine.client.generate([SEQUENCE], [SamplingParams(max_new_tokens=2)])
    engine.client.update_from_disk(engine.folder)
    _assert_serves(engine, engine.folder)


def test_a_tensor_can_be_read(engine: ServedFolder) -> None:
    tensors = load_file(engine.folder / "model.safetensors")
    norm, projection = "model.norm.weight", "model.layers.0.self_attn.q_proj.weight"
    assert engine.client.get_weights(norm, 3) == tensors[norm][:3].tolist()
    assert engine.client.get_weights(projection, 2) == tensors[projection][:2].tolist()


@contextmanager
def _group(engine: ServedFolder) -> Iterator[dist.ProcessGroup]:
    """A group of this process, at rank 0, and the engine."""
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(engine.client.init_update_group, "127.0.0.1", port, 1, 2, GROUP, "gloo")
        group = join_group("127.0.0.1", port, 2, 0, GROUP, "gloo", timeout_s=20)
        joined.result(timeout=20)
    try:
        yield group
    finally:
        engine.client.destroy_update_group(GROUP)
        leave_group(group)


def _broadcast(engine: ServedFolder, group: dist.ProcessGroup, tensors: dict[str, torch.Tensor]) -> None:
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()]
    shapes = [list(tensor.shape) for tensor in tensors.values()]
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(engine.client.update_from_group, list(tensors), dtypes, shapes, GROUP)
        for tensor in tensors.values():
            dist.broadcast(tensor, src=0, group=group)
        received.result(timeout=20)
