"""Bringing weights to an engine: by disk, by tensors, by process group, and what must be refused.

Whether weights arrived is told by log-probabilities and hashes, never by an answer's success flag.
"""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from infra.engines.client import EngineError, EngineRefused, SamplingParams
from infra.engines.tensors import buckets, pack
from infra.process import free_port
from infra.process_group import join_group, leave_group
from tasks.publishing.layout import differences
from tasks.record.manifest import Manifest
from tests.support.engines import ServedFolder, altered_copy, reference_logprobs

SEQUENCE = [3, 50, 100, 7, 9, 200]
GROUP = "conformance"
NORM = "model.norm.weight"
Tensors = dict[str, torch.Tensor]

pytestmark = pytest.mark.slow


def _from_disk(engine: ServedFolder, folder: Path) -> None:
    engine.client.update_from_disk(folder)


def _from_tensors(engine: ServedFolder, folder: Path) -> None:
    with _session(engine):
        for bucket in buckets(load_file(folder / "model.safetensors").items(), 2**17):
            engine.client.update_from_bucket(pack(bucket))


def _from_group(engine: ServedFolder, folder: Path) -> None:
    with _group(engine) as group, _session(engine):
        _broadcast(engine, group, load_file(folder / "model.safetensors"))


TRANSPORTS = [_from_disk, _from_tensors, _from_group]
every_transport = pytest.mark.parametrize("transport", TRANSPORTS, ids=["disk", "tensors", "group"])
Transport = Callable[[ServedFolder, Path], None]


def _assert_serves(engine: ServedFolder, folder: Path) -> None:
    """The engine gives the folder's log-probabilities and holds its tensors, all of them and no other."""
    scores = torch.tensor(engine.client.score([SEQUENCE])[0])
    torch.testing.assert_close(scores, reference_logprobs(folder, SEQUENCE), atol=1e-5, rtol=0)
    (rank,) = engine.client.checksums()
    assert differences(lambda: folder, Manifest.of(load_file(folder / "model.safetensors")), rank) == []


@every_transport
@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_an_update_changes_what_is_served(
    engine: ServedFolder, changed: Path, transport: Transport, paused: bool
) -> None:
    _assert_serves(engine, engine.folder)
    if paused:
        engine.client.pause()
    transport(engine, changed)
    engine.client.resume()
    _assert_serves(engine, changed)


@pytest.mark.parametrize("transport", TRANSPORTS[1:], ids=["tensors", "group"])
def test_an_update_of_some_tensors_leaves_the_others(
    engine: ServedFolder, changed: Path, tmp_path: Path, transport: Transport
) -> None:
    names = {NORM, "model.layers.1.self_attn.k_proj.weight", "model.embed_tokens.weight"}
    new = load_file(changed / "model.safetensors")
    some = altered_copy(changed, tmp_path / "some", lambda name, t: t if name in names else None)
    transport(engine, some)
    mixed = altered_copy(engine.folder, tmp_path / "mixed", lambda name, t: new[name] if name in names else t)
    _assert_serves(engine, mixed)


def test_the_folder_of_an_update_is_told(engine: ServedFolder, changed: Path) -> None:
    engine.client.update_from_disk(changed)
    assert engine.client.model_info().model_path == str(changed)


def test_another_architecture_is_refused_and_the_old_weights_go_on(
    engine: ServedFolder, tiny_llama: Path, tiny_mixture: Path
) -> None:
    other = tiny_mixture if engine.folder == tiny_llama else tiny_llama
    with pytest.raises(EngineRefused, match="ForCausalLM"):
        engine.client.update_from_disk(other)
    _assert_serves(engine, engine.folder)


def test_an_incomplete_folder_is_refused(engine: ServedFolder, tmp_path: Path) -> None:
    lacking = altered_copy(
        engine.folder, tmp_path / "lacking", lambda name, t: None if name == NORM else t * 2
    )
    with pytest.raises(EngineRefused, match=r"model\.norm\.weight"):
        engine.client.update_from_disk(lacking)
    _assert_serves(engine, engine.folder)


def test_a_tensor_of_another_shape_is_refused(engine: ServedFolder, tmp_path: Path) -> None:
    misshapen = altered_copy(
        engine.folder, tmp_path / "misshapen", lambda name, t: t[:-1] if name == NORM else t * 2
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


def test_a_folder_that_is_not_there_is_refused(engine: ServedFolder, tmp_path: Path) -> None:
    with pytest.raises(EngineRefused, match=r"nowhere/config\.json is missing"):
        engine.client.update_from_disk(tmp_path / "nowhere")
    _assert_serves(engine, engine.folder)


@pytest.mark.parametrize(
    ("name", "said"),
    [("model.none.weight", "names are not of the served model"), (NORM, "has shape")],
    ids=["unknown", "misshapen"],
)
def test_a_misfit_tensor_is_refused_and_the_engine_lives_on(
    engine: ServedFolder, changed: Path, name: str, said: str
) -> None:
    tensors = {**load_file(changed / "model.safetensors"), name: torch.ones(3)}
    with _session(engine), pytest.raises(EngineRefused, match=said):
        engine.client.update_from_bucket(pack(list(tensors.items())))
    _assert_serves(engine, engine.folder)
    _from_tensors(engine, changed)
    _assert_serves(engine, changed)


def test_a_misfit_over_a_process_group_is_refused_and_the_group_lives_on(
    engine: ServedFolder, changed: Path
) -> None:
    tensors = load_file(changed / "model.safetensors")
    with _group(engine) as group, _session(engine):
        with pytest.raises(EngineRefused):
            _broadcast(engine, group, {**tensors, "model.none.weight": torch.ones(3)})
        with pytest.raises(EngineRefused):
            _broadcast(engine, group, {**tensors, NORM: torch.ones(3)})
        _broadcast(engine, group, tensors)
    _assert_serves(engine, changed)


def test_a_group_that_is_gone_is_refused(engine: ServedFolder) -> None:
    with _group(engine):
        pass
    with _session(engine), pytest.raises(EngineRefused):
        engine.client.update_from_group([NORM], ["float32"], [[1]], GROUP)
    with pytest.raises(EngineRefused):
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


@pytest.mark.parametrize("family", ["llama"], indirect=True)  # SGLang reads no split tensors of Qwen3-MoE
def test_a_tensor_can_be_read(engine: ServedFolder) -> None:
    tensors = load_file(engine.folder / "model.safetensors")
    projection = "model.layers.0.self_attn.q_proj.weight"
    assert engine.client.get_weights(NORM, 3) == tensors[NORM][:3].tolist()
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


@contextmanager
def _session(engine: ServedFolder) -> Iterator[None]:
    engine.client.begin_update()
    try:
        yield
    finally:
        engine.client.end_update()


def _broadcast(engine: ServedFolder, group: dist.ProcessGroup, tensors: Tensors) -> None:
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()]
    shapes = [list(tensor.shape) for tensor in tensors.values()]
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(engine.client.update_from_group, list(tensors), dtypes, shapes, GROUP)
        for tensor in tensors.values():
            dist.broadcast(tensor, src=0, group=group)
        received.result(timeout=20)
