"""The module in which trainer and exported folder part is found, and so is the side that is off."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.alignment.layers import compare_layers
from tasks.probe.probe import Probe
from tasks.probe.report import LayerAlignment
from tasks.publishing.export import convert
from tasks.publishing.transports.staged import StagedVersion
from tests.support.models import MODELS, save_model
from tests.support.training import LooseRank, single_trainer
from tests.support.versions import version_named

SEQUENCES = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple]]:
    """A trainer that holds a tiny model, and the version that it exported; a model after the other."""
    with ExitStack() as running:
        made: dict[str, tuple[LooseRank, StagedVersion]] = {}

        def export(name: str) -> tuple[LooseRank, StagedVersion]:
            if name not in made:
                running.close()
                made.clear()
                model = save_model(MODELS[name], tmp_path_factory.mktemp(name))
                trainer = running.enter_context(single_trainer(model))
                manifest = trainer.export_to(model / "exported")
                probe = Probe(sequences=SEQUENCES, logprobs=trainer.score(SEQUENCES))
                made[name] = (
                    trainer,
                    StagedVersion(version_named(0, manifest), model / "exported", manifest, probe),
                )
            return made[name]

        yield export


def aligned(trainer: LooseRank, staged: StagedVersion, **engines: list[list[float]]) -> LayerAlignment:
    return compare_layers(staged, trainer.hidden_states, engines, "float32")


def perturbed(staged: StagedVersion, folder: Path, wrong: str) -> StagedVersion:
    """The version with one tensor of its folder changed by 5 %."""
    folder.mkdir()
    tensors = load_file(staged.folder / "model.safetensors")
    tensors[wrong] *= 1.05
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_bytes((staged.folder / "config.json").read_bytes())
    return replace(staged, folder=folder)


@pytest.mark.parametrize("name", ["llama-tied", "qwen3", "mixtral", "deepseek-v3"])
def test_an_export_computes_what_the_trainer_does(exported, name) -> None:
    trainer, staged = exported(name)
    layers = aligned(trainer, staged, one=staged.probe.logprobs)
    count = MODELS[name].num_hidden_layers
    between = [f"model.layers.{number}" for number in range(count)]
    assert [each.module for each in layers.modules] == ["model.embed_tokens", *between, "model.norm"]
    assert layers.first is None
    assert max(each.relative for each in layers.modules) <= 1e-5
    assert layers.trainer == layers.engines["one"] <= 2e-5


@pytest.mark.parametrize(
    ("name", "wrong", "first"),
    [
        ("qwen3", "model.embed_tokens.weight", "model.embed_tokens"),
        ("qwen3", "model.layers.0.self_attn.q_norm.weight", "model.layers.0"),
        ("qwen3", "model.layers.1.mlp.down_proj.weight", "model.layers.1"),
        ("qwen3", "model.norm.weight", "model.norm"),
        ("qwen3", "lm_head.weight", None),
        ("deepseek-v3", "model.layers.0.self_attn.kv_b_proj.weight", "model.layers.0"),
        ("deepseek-v3", "model.layers.1.mlp.shared_experts.up_proj.weight", "model.layers.1"),
        ("deepseek-v3", "model.layers.2.mlp.experts.5.down_proj.weight", "model.layers.2"),
    ],
)
def test_the_perturbed_module_is_the_first_that_differs(exported, tmp_path, name, wrong, first) -> None:
    trainer, staged = exported(name)
    layers = aligned(trainer, perturbed(staged, tmp_path / "wrong", wrong))
    assert layers.first == first
    assert layers.trainer > 1e-3


def test_an_engine_that_is_off_is_told_from_the_trainer(exported) -> None:
    trainer, staged = exported("qwen3")
    off = [[logprob + 0.5 for logprob in row] for row in staged.probe.logprobs]
    layers = aligned(trainer, staged, right=staged.probe.logprobs, off=off)
    assert layers.first is None and layers.trainer <= 2e-5
    assert layers.engines["right"] <= 2e-5
    assert layers.engines["off"] == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("form", ["bfloat16", "int8_channel"])
def test_what_the_number_format_explains_is_no_difference(exported, tmp_path, form) -> None:
    trainer, staged = exported("qwen3")
    (tmp_path / form).mkdir()
    manifest = convert(staged.folder, staged.manifest, tmp_path / form, form)
    served = replace(staged, folder=tmp_path / form, manifest=manifest)
    layers = aligned(trainer, served)
    assert layers.first is None
    assert max(each.relative for each in layers.modules) > 1e-4  # fp32 arithmetic alone would not explain it


def test_a_layer_that_is_not_a_number_differs(exported, tmp_path) -> None:
    trainer, staged = exported("qwen3")
    tensors = load_file(staged.folder / "model.safetensors")
    broken = perturbed(staged, tmp_path / "wrong", "model.norm.weight")
    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = torch.nan
    save_file(tensors, broken.folder / "model.safetensors", metadata={"format": "pt"})
    assert aligned(trainer, broken).first == "model.layers.1"
