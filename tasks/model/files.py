"""Which files of a folder in Hugging Face's layout are the model; whatever else lies there stays there."""

from pathlib import Path

COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "*.tiktoken",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "LICENSE*",
    "NOTICE*",
)
"""Configuration, tokenizer and licence. No code (models are built from their configuration alone), no
model card (it tells of other weights), and nothing of the training that the model comes from."""
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


def companions(folder: Path) -> list[Path]:
    """What belongs beside the weights, sorted."""
    return _matching(folder, COMPANIONS)


def model_files(folder: Path) -> list[Path]:
    """The whole model, sorted."""
    return _matching(folder, (*COMPANIONS, *WEIGHTS))


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
