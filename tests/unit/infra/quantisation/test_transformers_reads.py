"""transformers, as an independent reader of exported folders: on a CPU it dequantises fp8 itself."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3MoeConfig

from infra.quantisation.recipe import QuantisationRecipe
from tests.support.models import save_model

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": False,
}
EXPERTS: dict[str, Any] = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 128}
CONFIGS = [LlamaConfig(**SIZES), Qwen3MoeConfig(**SIZES, **EXPERTS)]


def saved(folder: Path, config: dict, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("name", ["fp8_block", "mxfp8"])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_transformers_computes_with_the_weights_that_restore_gives(config, name, tmp_path):
    source = save_model(config, tmp_path / "model")
    masters, written = (
        load_file(source / "model.safetensors"),
        json.loads((source / "config.json").read_text()),
    )
    recipe = QuantisationRecipe.of(written, name, torch.float32)
    exported = dict(recipe.apply(masters.items()))
    restored = dict(recipe.restore(exported.items()))

    quantised = AutoModelForCausalLM.from_pretrained(
        saved(tmp_path / "quantised", recipe.config(written), exported), dtype=torch.float32
    )
    served = AutoModelForCausalLM.from_pretrained(
        saved(tmp_path / "served", written, restored), dtype=torch.float32
    )

    expected = served.state_dict()
    assert quantised.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in quantised.state_dict().items())
    assert not all(torch.equal(restored[key], masters[key]) for key in masters)
