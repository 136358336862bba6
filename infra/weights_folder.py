"""Reading a model's weights from a folder in Hugging Face's layout."""

from collections.abc import Mapping, Set
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open

from configs.errors import RunFailure

if TYPE_CHECKING:
    from torch import Tensor  # which those who read only the headers can spare

Shapes = Mapping[str, tuple[int, ...]]
"""Tensor names of a model to shapes."""
_HEAD = "lm_head.weight"
_File = TypeVar("_File", bound=BaseModel)


class WeightsMismatch(RunFailure):
    """Weights cannot be read whole, or are not those of the model that is to take them."""


class WeightsFolder:
    """A folder with config.json and model.safetensors, or shards and model.safetensors.index.json.

    What the headers tell is read at once. Read tensors inside `with`, which closes the files.
    """

    def __init__(self, folder: Path) -> None:
        """WeightsMismatch when one of the files is missing, torn or otherwise unreadable."""
        config = _read_json(folder / "config.json", _Config)
        self.folder = folder
        self.architectures = tuple(config.architectures or ())
        self.layers = (config.text_config or config).num_hidden_layers
        """Hidden layers, where the configuration tells."""
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Every tensor; a head that is tied to the embedding is none."""
        self._file_of: dict[str, Path] = {}
        for file in _files(folder):
            with _opened(file, "numpy") as tensors:
                for name in tensors.keys():  # noqa: SIM118
                    self.shapes[name] = tuple(tensors.get_slice(name).get_shape())
                    self._file_of[name] = file
        if config.tie_word_embeddings:
            self.shapes.pop(_HEAD, None)
        self._open: dict[Path, Any] = {}

    @property
    def names(self) -> Set[str]:
        """Names of all tensors."""
        return self.shapes.keys()

    def whole(self, name: str) -> "Tensor":
        """A tensor; WeightsMismatch for a name that the folder does not have."""
        return self._tensors(name).get_tensor(name)

    def part(self, name: str, dim: int | None, rank: int, ranks: int) -> "Tensor":
        """The `rank`-th of `ranks` equal parts along `dim`, only its bytes read; None reads the whole tensor.

        Where the size is not a multiple of the ranks, the last part is shorter.
        """
        if dim is None:
            return self.whole(name)
        tensor, size = self._tensors(name).get_slice(name), self.shapes[name][dim]
        step = -(-size // ranks)
        start, stop = min(rank * step, size), min((rank + 1) * step, size)
        return tensor[start:stop] if dim == 0 else tensor[:, start:stop]

    def __enter__(self) -> "WeightsFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            self._open.popitem()[1].__exit__(kind, error, trace)

    def _tensors(self, name: str) -> Any:
        """The open file that a tensor is in."""
        if name not in self.shapes:
            raise WeightsMismatch(f"{self.folder} has no tensor {name}: give all the weights of the model")
        file = self._file_of[name]
        if file not in self._open:
            self._open[file] = _opened(file, "pt").__enter__()
        return self._open[file]


class _TextConfig(BaseModel):
    num_hidden_layers: int | None = None


class _Config(_TextConfig):
    """What is read of config.json."""

    architectures: tuple[str, ...] | None = None
    tie_word_embeddings: bool | None = None
    text_config: _TextConfig | None = None


class _Index(BaseModel):
    """What is read of model.safetensors.index.json."""

    weight_map: dict[str, str]


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return [folder / "model.safetensors"]
    return sorted({folder / file for file in _read_json(index, _Index).weight_map.values()})


def _opened(file: Path, framework: Literal["numpy", "pt"]) -> Any:
    try:
        return safe_open(file, framework=framework)
    except FileNotFoundError:
        raise _missing(file) from None
    except (SafetensorError, OSError) as error:
        raise WeightsMismatch(f"{file} is not a whole safetensors file: {error}") from error


def _read_json(file: Path, kind: type[_File]) -> _File:
    try:
        return kind.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        raise _missing(file) from None
    except ValidationError as error:
        raise WeightsMismatch(f"{file} cannot be read: {error.errors()[0]['msg']}") from error
    except OSError as error:
        raise WeightsMismatch(f"{file} cannot be read: {error.strerror}") from error


def _missing(file: Path) -> WeightsMismatch:
    return WeightsMismatch(f"{file} is missing: give a folder of config.json and safetensors files")
