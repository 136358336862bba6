"""Quantised versions from a trainer to an engine, in every format and by every transport."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file, save_file

from configs.engine import EmbeddedEngine
from configs.errors import UserError
from configs.weights import TOLERANCES, PublishConfig, QuantisedFormat
from infra.engines.client import EngineRefused
from infra.engines.tensors import pack
from tasks.fleet.engines import Engine
from tasks.probe.probe import Probe
from tasks.publishing.publish import PublishRefused, publish
from tasks.publishing.transports.base import Transfer
from tasks.publishing.transports.disk import Loading
from tasks.publishing.transports.process_group import Broadcast
from tasks.publishing.transports.staged import StagedVersion
from tasks.publishing.transports.tensor import Sending
from tasks.record.manifest import Manifest
from tests.support.engines import TINY_MODEL, altered_copy, reference_logprobs, running_engine
from tests.support.faulty_engine import faulty_engine
from tests.support.quantised import QUANTISED, dequantised_copy
from tests.support.training import LooseRank, graded_batch, single_trainer
from tests.support.versions import version_named

SEQUENCES = [[1, 40, 41, 42, 43, 44], [1, 60, 61, 62]]
BUCKET_BYTES = 40_000
"""Less than the largest weights, so that their scales come later."""


@contextmanager
def trainer_of(name: str) -> Iterator[LooseRank]:
    """A trainer of the tiny model that publishes in a format; bold steps, to tell versions apart."""
    fields = {"format": name, "bucket_mb": BUCKET_BYTES / 2**20}
    with single_trainer(TINY_MODEL, publish=fields, trainer={"learning_rate": 3e-3}) as trainer:
        yield trainer


def staged(trainer: LooseRank, folder: Path, version: int) -> StagedVersion:
    manifest = trainer.export_to(folder)
    probe = Probe(sequences=SEQUENCES, logprobs=trainer.score(SEQUENCES))
    return StagedVersion(version_named(version, manifest), folder, manifest, probe)


def held(engine: Engine) -> dict[str, str]:
    (rank,) = engine.client.checksums()
    return rank.checksums


def assert_serves(engine: Engine, version: StagedVersion, folder: Path) -> None:
    """It holds the manifest's weights and scales, and computes with just what they stand for."""
    assert held(engine) == {name: entry.hash for name, entry in version.manifest.tensors.items()}
    plain = dequantised_copy(version.folder, folder)
    for sequence, scored in zip(SEQUENCES, engine.client.score(SEQUENCES), strict=True):
        assert scored == pytest.approx(reference_logprobs(plain, sequence).tolist(), abs=1e-5)


@pytest.mark.parametrize("name", QUANTISED)
def test_weights_and_scales_of_each_version_reach_the_engine(name: str, tmp_path: Path) -> None:
    with trainer_of(name) as trainer:
        first = staged(trainer, tmp_path / "0", 0)
        with faulty_engine(first.folder) as served:
            engine = Engine("engine-0", served.client)
            transfers: list[Transfer] = [Loading(), Sending(BUCKET_BYTES)]
            for step, transfer in enumerate(transfers, start=1):
                trainer.apply(step, graded_batch(step))
                version = staged(trainer, tmp_path / str(step), step)

                report = publish([engine], version, transfer, PublishConfig(format=name))

                assert report.engine_hashes == {"engine-0": trainer.content_hash()}
                assert 1e-4 < report.probe_abs_diff_max <= TOLERANCES[name]
                assert_serves(engine, version, tmp_path / f"plain-{step}")


@pytest.mark.slow
def test_the_trainer_broadcasts_them_to_an_engine_of_its_own_process(tmp_path: Path) -> None:
    with trainer_of("fp8_channel") as trainer:
        first = staged(trainer, tmp_path / "0", 0)
        with running_engine(EmbeddedEngine(), first.folder, tmp_path / "engine.log") as served:
            engine = Engine("engine-0", served.client)
            trainer.apply(1, graded_batch(1))
            version = staged(trainer, tmp_path / "1", 1)
            publish([engine], version, Broadcast(trainer, "gloo"), PublishConfig(format="fp8_channel"))
            assert_serves(engine, version, tmp_path / "plain")


@pytest.mark.parametrize("end", ["", "_scale"], ids=["numbers", "scales"])
def test_numbers_or_scales_of_an_older_version_are_refused_and_named(end: str, tmp_path: Path) -> None:
    name = f"model.layers.1.mlp.up_proj.weight{end}"
    with trainer_of("fp8_channel") as trainer:
        old = staged(trainer, tmp_path / "0", 0)
        trainer.apply(1, graded_batch(1))
        new = staged(trainer, tmp_path / "1", 1)
    stale = load_file(new.folder / "model.safetensors")
    stale[name] = load_file(old.folder / "model.safetensors")[name]
    shutil.copytree(new.folder, tmp_path / "stale")
    save_file(stale, tmp_path / "stale" / "model.safetensors", metadata={"format": "pt"})
    with faulty_engine(old.folder) as served:
        published = replace(new, folder=tmp_path / "stale"), Loading(), PublishConfig(format="fp8_channel")
        with pytest.raises(PublishRefused, match=rf"engine-0 holds 1 of .* differ.* \(first: {name}\)"):
            publish([Engine("engine-0", served.client)], *published)
        assert served.client.model_info().weight_version != "1"


def test_numbers_without_their_scales_are_refused_by_the_engine(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.o_proj.weight"
    with trainer_of("mxfp4") as trainer:
        version = staged(trainer, tmp_path / "0", 0)
    numbers = load_file(version.folder / "model.safetensors")[name]
    with faulty_engine(version.folder) as served:
        served.client.begin_update()
        served.client.update_from_bucket(pack([(name, numbers + 1)]))
        with pytest.raises(EngineRefused, match=f"{name} came without {name}_scale"):
            served.client.end_update()
        assert_serves(Engine("engine-0", served.client), version, tmp_path / "plain")


def test_weights_that_are_not_finite_are_not_exported(tmp_path: Path) -> None:
    broken = altered_copy(TINY_MODEL, tmp_path / "broken", lambda n, t: t.log() if "k_proj" in n else t)
    with single_trainer(broken, publish={"format": "int8_channel"}) as trainer:
        with pytest.raises(
            UserError, match=r"step 0 cannot be published: .*0\.self_attn\.k_proj\.weight: hold"
        ):
            trainer.export_to(tmp_path / "0")
        with pytest.raises(UserError, match="cannot be published"):
            trainer.content_hash()


def test_an_export_declares_its_format_and_the_manifest_holds_its_scales(tmp_path: Path) -> None:
    with trainer_of("fp8_block") as trainer:
        version = staged(trainer, tmp_path / "0", 0)
        buckets = trainer.buckets()
    config = json.loads((version.folder / "config.json").read_text())
    assert config["quantization_config"]["weight_block_size"] == [128, 128]
    assert Manifest.of(load_file(version.folder / "model.safetensors")) == version.manifest
    assert {name: (dtype, shape) for bucket in buckets for name, dtype, shape in bucket} == {
        name: (entry.dtype, entry.shape) for name, entry in version.manifest.tensors.items()
    }
    for bucket in buckets:
        names = [spec.name for spec in bucket]
        assert all(name.removesuffix("_scale_inv") in names for name in names)


def test_formats_that_can_be_configured_are_those_that_there_are() -> None:
    assert {*get_args(QuantisedFormat)} == {*QUANTISED}
    assert TOLERANCES.keys() == {None, *QUANTISED}
    assert torch.finfo(torch.float32).eps < PublishConfig().probe_tolerance == TOLERANCES[None]
    assert PublishConfig(format="mxfp4").probe_tolerance == TOLERANCES["mxfp4"]
    assert PublishConfig(format="mxfp4", probe_tolerance=0.5).probe_tolerance == 0.5
