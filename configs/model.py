"""Where the model to train comes from."""

from typing import Annotated, Literal

from pydantic import Field

from configs.base import LocalPath, Section
from configs.form import Buttons


class FolderModel(Section):
    """A folder in Hugging Face's layout: config.json, safetensors and tokenizer files."""

    kind: Literal["folder"] = "folder"
    path: LocalPath
    """Folder of the model."""


class PackagedGgufModel(Section):
    """A GGUF file carried by an installed Python package; converted to such a folder once."""

    kind: Literal["packaged_gguf"]
    package: str
    """Importable name of the package that carries the file."""
    pattern: str = "*.gguf"
    """Which file inside the package, as a recursive glob."""


ModelConfig = Annotated[FolderModel | PackagedGgufModel, Field(discriminator="kind"), Buttons()]
