"""Which tensors of a model's folder are in which number format.

    recipe = QuantisationRecipe.of(config, "fp8_block", torch.bfloat16)
    save_file(dict(recipe.apply(weights)), folder / "model.safetensors")
    write_json(recipe.config(config), folder / "config.json")

On the other side `recipe.restore` gives back the weights that an engine computes with.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from infra.quantisation.errors import QuantisationError
from infra.quantisation.formats import BF16, FORMATS, FP32, Format, Plain, cast
from infra.quantisation.schemes import KeptModules

HIGH_PRECISION = (
    "lm_head",
    "mlp.gate",
    "mlp.router",
    "mlp.shared_expert_gate",
    "block_sparse_moe.gate",
    "shared_head.head",
    "eh_proj",
)
"""Linear layers that are never quantised: heads, routers, and the input of DeepSeek's draft layer.

Nor are embeddings, norms, biases and whatever is outside the layers; those are no linear layers, and SGLang
(0.5.23, w8a8_int8) fails on a declaration that names the embedding.
"""
_ALWAYS_KEPT = KeptModules(frozenset({*HIGH_PRECISION, "embed_tokens"}))
_FLOAT32 = ("e_score_correction_bias",)
"""Ends of the names of tensors that stay in float32 whatever the model's number format is."""
_LAYER_WEIGHT = re.compile(r"(?:^|\.)layers\.\d+\..+\.weight$")


class TensorForm(NamedTuple):
    """A tensor as a weights folder or an engine holds it."""

    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class QuantisationRecipe:
    """The number format of every tensor of one model's folder."""

    format: Format
    """Of the weights of linear layers."""
    dtype: torch.dtype
    """Of all other floating-point tensors."""
    declaration: Mapping[str, Any] | None
    """The model's `quantization_config`; None where it has none."""
    kept: KeptModules
    """Modules in layers that stay in high precision, besides HIGH_PRECISION."""

    @classmethod
    def of(
        cls, config: Mapping[str, Any], format_name: str | None, dtype: torch.dtype
    ) -> "QuantisationRecipe":
        """The recipe for a model, by its config.json.

        `format_name` is one of FORMATS, or None for what the model declares. `dtype`, bfloat16 or float32, is
        that of tensors which stay in high precision; as formats those set their own. HIGH_PRECISION
        stays so in every model, and what the model's own quantization_config names.
        Raises QuantisationError when the model declares another format than the one asked for.
        """
        own = config.get("quantization_config")
        chosen = _declared(own, dtype) if format_name is None else _named(format_name)
        if isinstance(chosen, Plain):
            return cls(chosen, chosen.dtype, None, KeptModules())
        assert chosen.scheme is not None
        if own is not None and (difference := chosen.scheme.difference(own)):
            raise QuantisationError(
                f"the model's quantization_config is not {chosen.name}, it has {difference}: "
                "ask for its own format, bfloat16 or float32"
            )
        declaration = chosen.scheme.write(HIGH_PRECISION) if own is None else own
        return cls(chosen, dtype, declaration, chosen.scheme.kept(declaration))

    def quantises(self, name: str, dims: int) -> bool:
        """Whether a tensor of the trainer, by its name in the folder and its dimensions, is quantised."""
        return dims == 2 and self._is_layer_weight(name)

    def forms(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> dict[str, TensorForm]:
        """What the folder holds for a tensor of the trainer: names to how the tensors have to be."""
        if not self.quantises(name, len(shape)):
            return {name: TensorForm(self._kept_dtype(name, dtype), shape)}
        with _naming(name):
            shapes = self.format.shapes(*shape)
        return {name + end: TensorForm(self.format.dtypes[end], shapes[end]) for end in shapes}

    def apply(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """The folder's tensors for the trainer's, one after another: each weight, then its scales.

        Raises QuantisationError, naming the tensor, where one cannot be put into its format.
        """
        for name, tensor in tensors:
            with _naming(name):
                parts = self._parts(name, tensor)
            for end, part in parts.items():
                yield name + end, part

    def restore(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """The weights in fp32 as an engine computes with them; what is not floating-point stays as it is.

        Parts of a weight may come in any order; the weight is yielded when the last has come.
        Raises QuantisationError, naming the tensor, for a dtype that is not the recipe's, and for a part that
        is missing or unknown.
        """
        waiting: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors:
            weight, end = self._part_of(name)
            if not end and not self.quantises(name, tensor.dim()):
                _require_dtype(name, tensor, self._kept_dtype(name, tensor.dtype))
                yield name, tensor.float() if tensor.is_floating_point() else tensor
                continue
            _require_dtype(name, tensor, self.format.dtypes[end])
            parts = waiting.setdefault(weight, {})
            parts[end] = tensor
            if parts.keys() == self.format.dtypes.keys():
                with _naming(weight):
                    restored = self.format.dequantise(waiting.pop(weight))
                yield weight, restored
        for weight, parts in waiting.items():
            missing = ", ".join(weight + end for end in self.format.dtypes if end not in parts)
            raise QuantisationError(f"{missing} is missing: {weight} is in {self.format.name}")

    def config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """config.json of a folder that `apply` made, from that of the model."""
        written = {
            key: config[key] for key in config if key not in ("quantization_config", "torch_dtype", "dtype")
        }
        written["dtype"] = str(self.dtype).removeprefix("torch.")
        if self.declaration is not None:
            written["quantization_config"] = dict(self.declaration)
        return written

    def _parts(self, name: str, tensor: Tensor) -> dict[str, Tensor]:
        if self.quantises(name, tensor.dim()):
            return self.format.quantise(tensor)
        kept = self._kept_dtype(name, tensor.dtype)
        return {"": cast(tensor, kept) if kept.is_floating_point else tensor}

    def _part_of(self, name: str) -> tuple[str, str]:
        """The weight that a tensor of the folder belongs to, and what its name adds to the weight's."""
        for end in self.format.dtypes:
            weight = name.removesuffix(end)
            if end and name.endswith(f".weight{end}"):
                if not self._is_layer_weight(weight):
                    raise QuantisationError(f"{name}: a scale, though {weight} stays in {self.dtype}")
                return weight, end
        return name, ""

    def _kept_dtype(self, name: str, dtype: torch.dtype) -> torch.dtype:
        if not dtype.is_floating_point:
            return dtype
        return torch.float32 if name.endswith(_FLOAT32) else self.dtype

    def _is_layer_weight(self, name: str) -> bool:
        if _LAYER_WEIGHT.search(name) is None:
            return False
        module = name.removesuffix(".weight")
        return module not in _ALWAYS_KEPT and module not in self.kept


def _named(format_name: str) -> Format:
    if format_name not in FORMATS:
        raise QuantisationError(f'"{format_name}" is no number format: use one of {", ".join(FORMATS)}')
    return FORMATS[format_name]


def _declared(own: Mapping[str, Any] | None, dtype: torch.dtype) -> Format:
    """The format that a model's quantization_config declares; without one, that of the dtype."""
    if own is None:
        return {form.dtype: form for form in (BF16, FP32)}[dtype]
    for form in FORMATS.values():
        if form.scheme is not None and form.scheme.difference(own) is None:
            return form
    raise QuantisationError(
        f"the model's quantization_config (quant_method {own.get('quant_method')!r}) is none of the formats "
        f"{', '.join(FORMATS)}: ask for bfloat16 or float32"
    )


def _require_dtype(name: str, tensor: Tensor, expected: torch.dtype) -> None:
    if tensor.dtype != expected:
        raise QuantisationError(f"{name} is {tensor.dtype} where {expected} is expected")


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put a tensor's name in front of what is wrong with it."""
    try:
        yield
    except QuantisationError as error:
        raise QuantisationError(f"{name}: {error}") from None
