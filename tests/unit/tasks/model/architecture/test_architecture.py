"""What is read from a config, what is refused by name, and how far a model can be split."""

from typing import Any

import pytest
from pydantic import ValidationError
from transformers import (
    DeepseekV2Config,
    DeepseekV3Config,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    Qwen2Config,
    Qwen3MoeConfig,
)

from configs.training import TrainerConfig
from tasks.model.architecture import Architecture
from tasks.model.architecture.families import FAMILIES
from tasks.model.errors import ModelUnsupported
from tests.support.models import LATENT, MODELS, SIZES
from tests.support.training import VOCABULARY


def test_every_supported_family_has_a_model_in_the_tests():
    assert {config.model_type for config in MODELS.values()} == set(FAMILIES)


@pytest.mark.parametrize("name", MODELS)
def test_an_architecture_survives_json(name):
    architecture = Architecture.of(MODELS[name])
    assert Architecture.model_validate_json(architecture.model_dump_json()) == architecture


def test_layers_with_experts_are_those_of_the_config():
    sparse = {name: Architecture.of(MODELS[name]) for name in ("qwen3", "qwen3-moe-sparse", "deepseek-v3")}
    layers = {name: [found.has_experts(layer) for layer in range(3)] for name, found in sparse.items()}
    assert layers == {
        "qwen3": [False, False, False],
        "qwen3-moe-sparse": [False, True, False],
        "deepseek-v3": [False, True, True],
    }


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (GPT2Config(), 'model type "gpt2": use one of llama, qwen2, qwen3, qwen3_moe, mixtral, deepseek_v2'),
        (LlamaConfig(**SIZES, hidden_act="gelu"), 'no hidden_act "gelu"'),
        (LlamaConfig(**SIZES, mlp_bias=True), "no mlp_bias"),
        (Qwen2Config(**SIZES, use_sliding_window=True, max_window_layers=0), "no sliding-window attention"),
        (MixtralConfig(**SIZES, sliding_window=16), "no sliding-window attention"),
        (Qwen3MoeConfig(**SIZES, num_experts_per_tok=1), "no num_experts_per_tok 1"),
        (DeepseekV3Config(**LATENT, attention_bias=True), "no attention_bias"),
        (DeepseekV3Config(**LATENT, norm_topk_prob=False), "no norm_topk_prob false"),
        (DeepseekV2Config(**LATENT, norm_topk_prob=True), "no norm_topk_prob"),
        (DeepseekV2Config(**LATENT, topk_method="noaux_tc"), 'no topk_method "noaux_tc"'),
        (
            LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}),
            'rope_scaling "linear"',
        ),
        (
            DeepseekV3Config(
                **LATENT, rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}
            ),
            'rope_scaling "yarn" .* "yarn" with mscale',
        ),
    ],
)
def test_unsupported_models_are_refused_by_name(config, named):
    with pytest.raises(ModelUnsupported, match=named):
        Architecture.of(config)


def test_a_folder_without_config_is_refused(tmp_path):
    with pytest.raises(ModelUnsupported, match="no readable config"):
        Architecture.read(tmp_path)


@pytest.mark.parametrize(
    ("model", "layout", "refusal"),
    [
        ("qwen3", {"tensor_parallel": 2}, None),
        ("qwen3", {"tensor_parallel": 4}, r"trainer\.tensor_parallel 4 does not divide .* kv_heads 2"),
        ("qwen3", {"data_parallel": 2, "expert_parallel": 2}, "expert_parallel 2: the model has no experts"),
        ("deepseek-v3", {"tensor_parallel": 4, "expert_parallel": 4}, None),
        ("deepseek-v3", {"tensor_parallel": 5}, "tensor_parallel 5 does not divide .* heads 4"),
        ("mixtral", {"data_parallel": 8, "expert_parallel": 8}, "expert_parallel 8 .* experts 4: set"),
    ],
)
def test_a_layout_has_to_divide_the_model(model: str, layout: dict[str, Any], refusal: str | None):
    architecture, trainer = Architecture.of(MODELS[model]), TrainerConfig(**layout)
    if refusal is None:
        architecture.check_layout(trainer)
        return
    with pytest.raises(ModelUnsupported, match=refusal):
        architecture.check_layout(trainer)


def test_expert_parallel_has_to_divide_the_ranks():
    with pytest.raises(
        ValidationError, match=r"expert_parallel 4 does not divide .* = 2: set it to a divisor"
    ):
        TrainerConfig(data_parallel=2, expert_parallel=4)


def test_the_vocabulary_is_padded_to_a_multiple_of_the_ranks():
    assert Architecture.of(MODELS["qwen3"]).padded_vocab_size(2) == VOCABULARY + 1
