"""Hugging Face -> Megatron -> Hugging Face, and what the trainer refuses to load."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config

from tasks.training.architecture import Architecture
from tasks.training.errors import ModelUnsupported, WeightsMismatch
from tests.support.models import MODELS, SIZES, save_model
from tests.support.training import VOCABULARY, single_trainer


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_bit_equal_and_scores_are_those_of_transformers(name, tmp_path):
    folder = save_model(MODELS[name], tmp_path / "model")
    sequences = torch.randint(VOCABULARY, (3, 40), generator=torch.Generator().manual_seed(1))
    with single_trainer(folder) as trainer:
        trainer.export(tmp_path / "exported", folder)
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
        trainer.export(tmp_path / "exported", llama)
    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert all(torch.equal(exported[name], whole[name]) for name in whole)
    assert not (tmp_path / "exported" / "a.safetensors").exists()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (GPT2Config(), r'model type "gpt2": use one of llama, qwen2, qwen3'),
        (LlamaConfig(**SIZES, hidden_act="gelu"), r'no hidden_act "gelu"'),
        (LlamaConfig(**SIZES, mlp_bias=True), "no mlp_bias"),
        (Qwen2Config(**SIZES, use_sliding_window=True, max_window_layers=0), "no sliding-window attention"),
        (
            LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}),
            r'rope_scaling "linear"',
        ),
    ],
)
def test_unsupported_models_are_refused_by_name(config, named):
    with pytest.raises(ModelUnsupported, match=named):
        Architecture.of(config)


def test_a_folder_without_config_is_refused(tmp_path):
    with pytest.raises(ModelUnsupported, match="no readable config"):
        Architecture.read(tmp_path)


def test_tensor_parallel_has_to_divide_the_heads():
    architecture = Architecture.of(MODELS["qwen3"])
    architecture.check_tensor_parallel(2)
    with pytest.raises(ModelUnsupported, match=r"trainer\.tensor_parallel 4 does not divide .* kv_heads 2"):
        architecture.check_tensor_parallel(4)
    assert architecture.padded_vocab_size(2) == VOCABULARY + 1
