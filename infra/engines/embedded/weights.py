"""The served weights under the names of their Hugging Face checkpoint, read and replaced in place."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from infra.engines.checkpoint import Checkpoint, WeightsMismatch, require_complete, require_fit
from infra.engines.checksum import tensor_hash


class LiveWeights:
    """Views of a model's parameters: writing to one changes what is served, at once and in place."""

    def __init__(self, module: PreTrainedModel) -> None:
        self._views = checkpoint_views(module)
        self._tied = frozenset(module.all_tied_weights_keys)

    def checksums(self) -> dict[str, str]:
        """Hash of every tensor."""
        return {name: tensor_hash(view) for name, view in self._views.items()}

    def get(self, name: str) -> torch.Tensor:
        """A tensor; WeightsMismatch for a name that the checkpoint does not have."""
        if name not in self._views:
            raise WeightsMismatch(f"{name} is not a tensor of the served model")
        return self._views[name].detach()

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Replace all weights; WeightsMismatch, with nothing changed, unless it has them all."""
        require_complete(checkpoint, self._views)
        wanted = {name: shape for name, shape in checkpoint.shapes.items() if name not in self._tied}
        require_fit(wanted, self._shapes())
        for file in checkpoint.files:
            with safe_open(file, framework="pt") as tensors:
                names = wanted.keys() & tensors.keys()
                self._write({name: tensors.get_tensor(name) for name in names})

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Replace the named weights; WeightsMismatch, with nothing changed, when one does not fit."""
        require_fit({name: tuple(tensor.shape) for name, tensor in tensors.items()}, self._shapes())
        self._write(tensors)

    @torch.no_grad()
    def _write(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for name, tensor in tensors.items():
            self._views[name].copy_(tensor)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(view.shape) for name, view in self._views.items()}


def checkpoint_views(module: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Name in the checkpoint that save_pretrained would write -> view of the parameter that holds the tensor.

    transformers fuses some tensors (the experts of a layer, say) into one parameter. Where a checkpoint
    tensor lies in it is read off by sending element numbers instead of weights through the conversion.
    """
    state = {name: t for name, t in module.state_dict().items() if name not in module.all_tied_weights_keys}
    starts = [0, *accumulate(tensor.numel() for tensor in state.values())]
    numbers = {
        name: torch.arange(start, start + tensor.numel()).view(tensor.shape)
        for (name, tensor), start in zip(state.items(), starts, strict=False)
    }
    converted = revert_weight_conversion(module, numbers)
    if converted is numbers:
        return state
    parameters = list(state.values())
    views = {}
    for name, number in converted.items():
        first = int(number.flatten()[0])
        position = bisect_right(starts, first) - 1
        views[name] = _view(name, parameters[position], number - starts[position])
    return views


def _view(name: str, parameter: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """The strided view of a contiguous parameter whose elements have the given numbers in it."""
    origin = number[(0,) * number.dim()]
    strides = [
        int(number.select(dim, 1)[(0,) * (number.dim() - 1)] - origin) if size > 1 else 1
        for dim, size in enumerate(number.shape)
    ]
    offset = parameter.storage_offset() + int(origin)
    every = torch.arange(parameter.numel())
    if not torch.equal(every.as_strided(number.shape, strides, int(origin)), number):
        raise WeightsMismatch(
            f"{name} is not stored as a part of one parameter: it cannot be replaced in place"
        )
    return parameter.as_strided(number.shape, strides, offset)
