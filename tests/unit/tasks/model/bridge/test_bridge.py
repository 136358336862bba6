"""Hugging Face -> Megatron -> Hugging Face, and what the trainer refuses to load."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tasks.model.architecture import Architecture
from tasks.model.bridge.transfer import load_weights
from tasks.model.errors import WeightsMismatch
from tasks.model.megatron.model import build_model
from tests.support.models import MODELS, save_model
from tests.support.training import VOCABULARY, single_trainer, trainer_config


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_bit_equal_and_scores_are_those_of_transformers(name, tmp_path):
    folder = save_model(MODELS[name], tmp_path / "model")
    sequences = torch.randint(VOCABULARY, (3, 40), generator=torch.Generator().manual_seed(1))
    with single_trainer(folder) as trainer:
        trainer.export_to(tmp_path / "exported")
        scores = torch.tensor(trainer.score(sequences.tolist()))
    source, exported = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "exported"))
    assert exported.keys() == source.keys()
    assert all(torch.equal(exported[tensor], source[tensor]) for tensor in source)

    logits = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(sequences).logits
    expected = logits[:, :-1].log_softmax(-1).gather(2, sequences[:, 1:, None])[..., 0]
    assert (scores - expected).abs().max() <= 2e-5


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """Folder of an untied Llama."""
    return save_model(MODELS["llama-untied"], tmp_path / "llama")


def rewrite(folder: Path, change) -> None:
    """Change the tensors of a checkpoint folder."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def refused(folder: Path) -> str:
    """The message that loading the folder fails with."""
    with pytest.raises(WeightsMismatch) as caught, single_trainer(folder):
        pass
    return str(caught.value)


def test_missing_and_unknown_tensors_are_named(llama):
    rewrite(llama, lambda tensors: tensors.pop("model.layers.1.self_attn.k_proj.bias"))
    assert "lacks model.layers.1.self_attn.k_proj.bias" in refused(llama)
    rewrite(
        llama,
        lambda tensors: tensors.update(
            {"model.layers.1.self_attn.k_proj.bias": torch.zeros(24), "extra.weight": torch.zeros(2)}
        ),
    )
    assert "has unknown extra.weight" in refused(llama)


@pytest.mark.parametrize(
    ("tensor", "shape"),
    [
        ("model.embed_tokens.weight", (VOCABULARY - 1, 32)),
        ("lm_head.weight", (VOCABULARY, 16)),
        ("model.layers.0.self_attn.k_proj.weight", (23, 32)),
        ("model.layers.0.mlp.up_proj.weight", (40, 32)),
        ("model.layers.0.input_layernorm.weight", (1,)),
    ],
)
def test_a_tensor_of_another_shape_is_named(llama, tensor, shape):
    rewrite(llama, lambda tensors: tensors.update({tensor: torch.zeros(shape)}))
    assert tensor in refused(llama)


def test_a_folder_without_weights_is_refused(llama):
    (llama / "model.safetensors").unlink()
    assert "no model.safetensors" in refused(llama)


def test_a_checkpoint_in_shards_is_read_through_its_index(llama, tmp_path):
    whole = load_file(llama / "model.safetensors")
    names = sorted(whole)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({name: whole[name] for name in held}, llama / file)
    index = {"weight_map": {name: file for file, held in shards.items() for name in held}}
    (llama / "model.safetensors.index.json").write_text(json.dumps(index))
    (llama / "model.safetensors").unlink()
    with single_trainer(llama) as trainer:
        trainer.export_to(tmp_path / "exported")
    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert all(torch.equal(exported[name], whole[name]) for name in whole)
    assert not (tmp_path / "exported" / "a.safetensors").exists()


@pytest.fixture
def deepseek(tmp_path: Path) -> Path:
    """Folder of a DeepSeek-V3."""
    return save_model(MODELS["deepseek-v3"], tmp_path / "deepseek")


@pytest.mark.parametrize(
    "tensor",
    [
        "model.layers.2.mlp.experts.7.up_proj.weight",
        "model.layers.1.mlp.gate.e_score_correction_bias",
        "model.layers.1.mlp.shared_experts.down_proj.weight",
        "model.layers.0.self_attn.kv_a_layernorm.weight",
    ],
)
def test_a_tensor_that_experts_or_latent_attention_lack_is_named(deepseek, tensor):
    rewrite(deepseek, lambda tensors: tensors.pop(tensor))
    assert f"lacks {tensor}:" in refused(deepseek)


def test_an_expert_too_many_is_named_and_many_are_counted(deepseek):
    rewrite(
        deepseek,
        lambda tensors: tensors.update(
            {f"model.layers.1.mlp.experts.8.extra{number}": torch.zeros(1) for number in range(20)}
        ),
    )
    assert "has unknown model.layers.1.mlp.experts.8.extra0, " in refused(deepseek)
    assert " and 12 more" in refused(deepseek)


def test_layers_that_predict_further_tokens_are_left_out(deepseek, tmp_path):
    source = load_file(deepseek / "model.safetensors")
    rewrite(deepseek, lambda tensors: tensors.update({"model.layers.3.eh_proj.weight": torch.zeros(2)}))
    with single_trainer(deepseek) as trainer:
        trainer.export_to(tmp_path / "exported")
    assert load_file(tmp_path / "exported" / "model.safetensors").keys() == source.keys()
    rewrite(deepseek, lambda tensors: tensors.update({"model.layers.4.eh_proj.weight": torch.zeros(2)}))
    assert "has unknown model.layers.4.eh_proj.weight" in refused(deepseek)


def test_a_tensor_of_the_model_without_a_mapping_is_named(deepseek):
    architecture = Architecture.read(deepseek)
    with single_trainer(deepseek):
        model = build_model(architecture, trainer_config(deepseek).trainer, torch.device("cpu")).module
        model.register_buffer("routing_table", torch.zeros(3))
        with pytest.raises(WeightsMismatch, match=r"differ in routing_table: correct bridge/families\.py"):
            load_weights(model, architecture, deepseek)


def test_buffers_keep_their_precision_and_buckets_tell_what_is_exported(deepseek, tmp_path):
    bias = "model.layers.1.mlp.gate.e_score_correction_bias"
    publish = {"bucket_mb": 0.01, "probe_tolerance": 0.5, "prefix_tolerance": 0.5}
    with single_trainer(deepseek, engine={"dtype": "bfloat16"}, publish=publish) as trainer:
        trainer.export_to(tmp_path / "exported")
        specs = [spec for bucket in trainer.buckets() for spec in bucket]
    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert {name: getattr(torch, dtype) for name, dtype, _ in specs} == {
        name: tensor.dtype for name, tensor in exported.items()
    }
    assert {name: shape for name, _, shape in specs} == {
        name: tuple(tensor.shape) for name, tensor in exported.items()
    }
    assert torch.equal(exported[bias], load_file(deepseek / "model.safetensors")[bias])
    assert {name for name, tensor in exported.items() if tensor.dtype != torch.bfloat16} == {
        bias,
        bias.replace("layers.1", "layers.2"),
    }
