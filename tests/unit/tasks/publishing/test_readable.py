"""Every format of every model family is loaded by transformers as what it stands for, or refused by name."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from infra.quantisation.errors import QuantisationError
from infra.quantisation.formats import FORMATS
from infra.quantisation.recipe import QuantisationRecipe
from infra.weights_folder import WeightsFolder
from tasks.publishing.export import convert
from tasks.publishing.readable import check_readable
from tasks.record.manifest import Manifest
from tests.support.engines import TINY_MODEL
from tests.support.models import MODELS, SIZES, save_model

TOKENS = torch.tensor([[1, 4, 5, 6, 7, 8, 9]])
WHOLE_BLOCKS = LlamaConfig(**{**SIZES, "hidden_size": 128, "intermediate_size": 256})
EXPERTS = ["qwen3-moe", "mixtral", "deepseek-v2-groups", "deepseek-v3"]
FAMILIES = {
    "llama-whole-blocks": WHOLE_BLOCKS,
    **{name: MODELS[name] for name in ("llama-tied", "qwen2", "qwen3", *EXPERTS)},
}
"""One of each `model_type`; and of llama, one that fits the blocks of every format."""
MODEL_NAMES = ["tiny-arithmetic", *FAMILIES]
OF_32 = ["tiny-arithmetic", "llama-whole-blocks"]
"""Those whose sizes are all multiples of 32."""
REFUSED = {
    "fp8_block": {"tiny-arithmetic": "mlp.down_proj.weight: transformers reads blocks of 128"},
    "int8_channel": dict.fromkeys(EXPERTS, "transformers does not read experts in int8_channel"),
    "mxfp8": {name: "not a multiple of 32" for name in MODEL_NAMES if name not in OF_32},
    "mxfp4": dict.fromkeys(MODEL_NAMES, "transformers does not read mxfp4"),
}
"""What is refused, and why."""
BY_CHANNEL = {"fp8_channel": 0.6, "int8_channel": 0.1}
"""Mean difference of logits, in standard deviations: these declare quantised activations too, which
transformers rounds and the weights alone do not show."""


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A model's folder, made once."""
    root = tmp_path_factory.mktemp("families")
    make = cache(lambda name: save_model(FAMILIES[name], root / name))
    return lambda name: TINY_MODEL if name == "tiny-arithmetic" else make(name)


@torch.no_grad()
def logits(folder: Path) -> torch.Tensor:
    """Those of transformers, which finds every tensor that it wants and no other."""
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    model, seen = loaded
    assert not any(seen.values()), seen
    return model.eval()(TOKENS).logits


@pytest.mark.parametrize("name", MODEL_NAMES)
@pytest.mark.parametrize("form", FORMATS)
def test_what_is_exported_is_loaded_by_transformers(
    form: str, name: str, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    source = folder_of(name)
    config = json.loads((source / "config.json").read_text())
    recipe = QuantisationRecipe.of(config, form, torch.bfloat16)
    with WeightsFolder(source) as weights:
        if refusal := REFUSED.get(form, {}).get(name):
            with pytest.raises(QuantisationError, match=refusal):
                check_readable(recipe, weights.shapes)
            return
        check_readable(recipe, weights.shapes)
        masters = {tensor: weights.whole(tensor) for tensor in sorted(weights.names)}
    exported, stands_for = tmp_path / "exported", tmp_path / "stands-for"
    for folder in (exported, stands_for):
        folder.mkdir()
    manifest = convert(source, Manifest.of(masters), exported, form)
    convert(exported, manifest, stands_for, "float32")
    found, expected = logits(exported), logits(stands_for)
    assert (found - expected).abs().mean() / expected.std() < BY_CHANNEL.get(form, 1e-3)
