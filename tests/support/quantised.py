"""Model folders in quantised formats, and the plain ones that they stand for."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from infra.quantisation.formats import FORMATS
from infra.quantisation.recipe import QuantisationRecipe

QUANTISED = [name for name, form in FORMATS.items() if form.scheme is not None]


def quantised_copy(source: Path, target: Path, name: str) -> Path:
    """An fp32 model folder in another format, with fp32 for what is not quantised."""
    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text())
    recipe = QuantisationRecipe.of(config, name, torch.float32)
    tensors = dict(recipe.apply(load_file(source / "model.safetensors").items()))
    (target / "config.json").write_text(json.dumps(recipe.config(config)))
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


def dequantised_copy(source: Path, target: Path) -> Path:
    """The fp32 model folder that a quantised one stands for."""
    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text())
    recipe = QuantisationRecipe.of(config, None, torch.float32)
    weights = dict(recipe.restore(load_file(source / "model.safetensors").items()))
    del config["quantization_config"]
    (target / "config.json").write_text(json.dumps(config))
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target
