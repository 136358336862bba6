"""Where the model to train comes from."""

from typing import Annotated, Literal

from pydantic import Field

from configs.base import LocalPath, Section


class FolderModel(Section):
    """A Hugging Face checkpoint folder: config.json, safetensors and tokenizer files."""

    kind: Literal["folder"] = "folder"
    path: LocalPath
    """Folder of the checkpoint."""


class PackagedGgufModel(Section):
    """A GGUF file carried by an installed Python package; converted to a checkpoint folder once."""

    kind: Literal["packaged_gguf"]
    package: str
    """Importable name of the package that carries the file."""
    pattern: str = "*.gguf"
    """Which file inside the package, as a recursive glob."""


ModelConfig = Annotated[FolderModel | PackagedGgufModel, Field(discriminator="kind")]
