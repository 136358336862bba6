"""One SGLang engine of two ranks, laid out over two machines that are both this one."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import LlamaConfig

from configs.loading import load_config
from configs.run import RunConfig
from configs.weights import PublishConfig
from infra.home import Home
from tasks.fleet.engines import Fleet
from tasks.probe.probe import Probe
from tasks.publishing.publish import PublishRefused, publish
from tasks.publishing.transports.disk import Loading
from tasks.publishing.transports.staged import StagedVersion
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tests.support.chaos import servers_below
from tests.support.command import CONFIGS
from tests.support.engines import TINY_MODEL, altered_copy, reference_logprobs
from tests.support.models import SIZES, save_model
from tests.support.versions import version_named

SEQUENCES = [[1, 40, 41, 42, 43, 44], [1, 60, 61, 62, 320]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose vocabulary SGLang has to pad."""
    sizes = SIZES | {"vocab_size": 330, "intermediate_size": 64}
    folder = save_model(LlamaConfig(**sizes, tie_word_embeddings=False), tmp_path_factory.mktemp("model"))
    for file in TINY_MODEL.glob("tokenizer*"):
        shutil.copy(file, folder)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run with one such engine, on a cluster that is up."""
    home = Home(tmp_path_factory.mktemp("home"))
    preset = load_config(CONFIGS / "tiny-sglang-cpu.yaml").model_dump()
    preset["engine"] |= {"tensor_parallel": 2, "nodes": 2, "context_length": 64}
    preset["rollout"]["max_new_tokens"] = 16
    run = Run(id="two-nodes", config=RunConfig.model_validate(preset), home=home)
    run.config.cluster.build(home).start()
    yield run
    Fleet(run).stop()
    run.config.cluster.build(home).stop()


def in_store(run: Run, key: str, folder: Path) -> str:
    """Put a copy of a folder into the run's store; its key."""
    run.store.upload(key, shutil.copytree(folder, run.store.scratch(), dirs_exist_ok=True))
    return key


def staged(folder: Path, version: int) -> StagedVersion:
    """A folder as a trainer that holds its weights would stage it."""
    logprobs = [reference_logprobs(folder, sequence).tolist() for sequence in SEQUENCES]
    manifest = Manifest.of(load_file(folder / "model.safetensors"))
    return StagedVersion(
        version_named(version, manifest), folder, manifest, Probe(sequences=SEQUENCES, logprobs=logprobs)
    )


def test_two_ranks_hold_what_is_published_and_start_together(run: Run, model: Path, tmp_path: Path) -> None:
    fleet = Fleet(run)
    (engine,) = fleet.start(in_store(run, "initial", model))
    assert [rank.place.tp_rank for rank in engine.client.checksums()] == [0, 1]
    changed = altered_copy(model, tmp_path / "changed", lambda _, tensor: tensor * 1.01)
    report = publish([engine], staged(changed, 1), Loading(), PublishConfig())
    assert report.probe_abs_diff_max <= 1e-4
    assert [serving.name for serving in fleet.serving(1)] == ["engine-0"]

    other = altered_copy(model, tmp_path / "other", lambda name, tensor: tensor + ("k_proj" in name) * 1e-6)
    with pytest.raises(PublishRefused, match=r"version 2 refused: engine-0 holds 2 of .*qkv_proj"):
        publish(
            [engine],
            replace(staged(model, 2), folder=other),
            Loading(),
            PublishConfig(),
        )

    (second,) = servers_below(os.getpid(), "--node-rank=1")
    second.kill()
    (again,) = fleet.start(in_store(run, "changed", changed))
    assert again.client.url != engine.client.url  # the first was started anew with the second
    assert fleet.serving(1) == []
    assert publish([again], staged(changed, 1), Loading(), PublishConfig()).probe_abs_diff_max <= 1e-4
