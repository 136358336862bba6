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


class HubModel(Section):
    """A model of the Hugging Face hub, or of its cache on this machine when the hub cannot be reached."""

    kind: Literal["hub"]
    repo: str = Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")
    """Id on the hub: organisation/name."""
    revision: str = "main"
    """Branch, tag or commit. A run keeps the files that it began with, whatever becomes of a branch."""


class PackagedGgufModel(Section):
    """A GGUF file carried by an installed Python package; converted to such a folder once."""

    kind: Literal["packaged_gguf"]
    package: str
    """Importable name of the package that carries the file."""
    pattern: str = "*.gguf"
    """Which file inside the package, as a recursive glob."""


ModelConfig = Annotated[FolderModel | HubModel | PackagedGgufModel, Field(discriminator="kind"), Buttons()]
