"""The served weights under their names in Hugging Face's layout, read and replaced in place."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from infra.engines.checksum import tensor_hash
from infra.engines.fit import require_complete, require_fit
from infra.quantisation.recipe import QuantisationRecipe, TensorForm
from infra.weights_folder import WeightsFolder, WeightsMismatch

_CONVERTIBLE = {torch.float32, torch.bfloat16, torch.float16}


class LiveWeights:
    """The tensors of a model's weights folder, and the model's parameters, which always follow from them.

    A tensor that the model computes with as it is lies in the parameter itself. Beside quantised weights and
    their scales, which are kept as they came, the parameter holds the dequantised weight.
    """

    def __init__(self, module: PreTrainedModel, recipe: QuantisationRecipe) -> None:
        """QuantisationError for a model that does not fit the recipe's format."""
        self._recipe = recipe
        self._device = module.device
        self._parameters = folder_views(module)
        self._tied = frozenset(module.all_tied_weights_keys)
        self._forms = {
            name: recipe.forms(name, view.dtype, tuple(view.shape)) for name, view in self._parameters.items()
        }
        """The folder's tensors of each parameter."""
        self._owner = {part: name for name, forms in self._forms.items() for part in forms}
        """The parameter that a tensor of the folder belongs to."""
        self._held = {part: self._own_place(part) for part in self._owner}
        self._waiting: dict[str, Tensor] = {}
        """Parts of quantised weights that came without the others."""

    def checksums(self) -> dict[str, str]:
        """Hash of every tensor, as it is held."""
        return {name: tensor_hash(tensor) for name, tensor in self._held.items()}

    def get(self, name: str) -> Tensor:
        """A tensor; WeightsMismatch for a name that it does not have."""
        if name not in self._held:
            raise WeightsMismatch(f"{name} is not a tensor of the served model")
        return self._held[name].detach()

    def load_folder(self, offered: WeightsFolder, convert: bool = False) -> None:
        """Replace all weights; WeightsMismatch, with nothing changed, unless it has them all and they fit.

        `convert` takes what is not quantised in other dtypes than it is held in.
        """
        require_complete(offered, self._held)
        with offered:
            tensors = {name: offered.whole(name) for name in offered.names - self._tied}
            if convert:
                tensors = {name: self._converted(name, tensor) for name, tensor in tensors.items()}
            self.load(tensors)

    def place(self, name: str, form: TensorForm) -> Tensor:
        """Contiguous memory for a tensor that is to be loaded: its own, where it is served as it comes."""
        held = self._held.get(name)
        if (
            held is not None
            and held is self._parameters.get(name)
            and held.is_contiguous()
            and form == TensorForm(held.dtype, tuple(held.shape))
        ):
            return held
        return torch.empty(form.shape, dtype=form.dtype, device=self._device)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the named tensors; WeightsMismatch when one does not fit, with nothing changed but what was
        received into its `place`.

        A quantised weight and its scales are replaced together, when all of them have come: by a later call,
        if need be. `finish` ends the wait.
        """
        self._require_fit(tensors)
        self._waiting |= tensors
        for name in dict.fromkeys(self._owner[part] for part in tensors):
            if self._forms[name].keys() <= self._waiting.keys():
                self._replace(name, {part: self._waiting.pop(part) for part in self._forms[name]})

    def finish(self) -> None:
        """End an update; WeightsMismatch for what came without its scales, or they without it.

        Those weights stay as they were.
        """
        waiting, self._waiting = self._waiting, {}
        for part in waiting:
            missing = [other for other in self._forms[self._owner[part]] if other not in waiting]
            raise WeightsMismatch(f"{part} came without {', '.join(missing)}: send them in one update")

    def _own_place(self, part: str) -> Tensor:
        """Where a tensor of the folder is held: in its parameter, when that is alike."""
        name = self._owner[part]
        parameter, form = self._parameters[name], self._forms[name][part]
        if form == TensorForm(parameter.dtype, tuple(parameter.shape)):
            return parameter
        return torch.empty(form.shape, dtype=form.dtype, device=parameter.device)

    def _converted(self, name: str, tensor: Tensor) -> Tensor:
        held = self._held.get(name, tensor).dtype
        return tensor.to(held) if {held, tensor.dtype} <= _CONVERTIBLE else tensor

    def _require_fit(self, tensors: Mapping[str, Tensor]) -> None:
        offered = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        require_fit(offered, {name: tuple(tensor.shape) for name, tensor in self._held.items()})
        for name, tensor in tensors.items():
            if tensor.dtype != self._held[name].dtype:
                raise WeightsMismatch(
                    f"{name} is {tensor.dtype}, the served model holds {self._held[name].dtype}"
                )

    @torch.no_grad()
    def _replace(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Hold new tensors of a parameter, and have it follow from them."""
        for part, tensor in tensors.items():
            self._held[part].copy_(tensor)
        parameter = self._parameters[name]
        if self._held[name] is not parameter:
            restored = dict(self._recipe.restore((part, self._held[part]) for part in tensors))
            parameter.copy_(restored[name])


def folder_views(module: PreTrainedModel) -> dict[str, Tensor]:
    """Name in the folder that save_pretrained would write -> view of the parameter that holds the tensor.

    transformers fuses some tensors (the experts of a layer, say) into one parameter. Where a tensor
    of the folder lies in it is read off by sending element numbers instead of weights through the conversion.
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


def _view(name: str, parameter: Tensor, number: Tensor) -> Tensor:
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
