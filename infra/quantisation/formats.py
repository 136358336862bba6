"""Number formats of a served weight: from a matrix to the tensors that a folder holds for it, and back.

    parts = FP8_BLOCK.quantise(weight)  # {"": e4m3 [rows, cols], "_scale_inv": fp32 [rows / 128, cols / 128]}
    served = FP8_BLOCK.dequantise(parts)

Numbers and scales are made together and come together, so that a scale is never older than its numbers.
Rounding is to nearest, ties to even. What comes out depends on the weight alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from infra.quantisation.elements import E2M1, E4M3, INT8, Element
from infra.quantisation.errors import QuantisationError
from infra.quantisation.scales import E8M0, FLOAT32, ScaleType
from infra.quantisation.schemes import FP8, FP8_CHANNELS, INT8_CHANNELS, MX_FP4, MX_FP8, Scheme

_STRIP = 128
"""Rows that are quantised at a time, a multiple of every block: bounds the memory and stays in the cache."""

_TOO_LARGE = 2.0**127
"""Above it the nearest number of a block format may be beyond fp32's largest."""


class Format(Protocol):
    """How the weight of a linear layer, [rows = outputs, cols = inputs], is held."""

    @property
    def name(self) -> str: ...

    @property
    def scheme(self) -> Scheme | None:
        """How config.json declares it; None where nothing is to be declared."""

    @property
    def relative_error(self) -> float:
        """Largest |weight - dequantised weight| in a block over the largest |weight| of the block.

        Up to fp32's own rounding, 2**-22. In blocks with nothing from 2**-117 on, whose scale is the smallest
        there is, the error is at most 2**-122 instead.
        """

    @property
    def dtypes(self) -> Mapping[str, torch.dtype]:
        """What each tensor's name adds to the weight's name, to its dtype; the weight's own ("") first."""

    def shapes(self, rows: int, cols: int) -> dict[str, tuple[int, ...]]:
        """Shapes of those tensors. Raises QuantisationError for a weight that does not fit the format."""

    def quantise(self, weight: Tensor) -> dict[str, Tensor]:
        """The tensors of a floating-point weight, as `dtypes` and `shapes` say.

        Raises QuantisationError when the weight holds a NaN, an infinity, or a number of 2**127 and more.
        """

    def dequantise(self, parts: Mapping[str, Tensor]) -> Tensor:
        """The fp32 weight that an engine computes with.

        Raises QuantisationError for scales of another shape.
        """


@dataclass(frozen=True)
class Plain:
    """Unscaled floating-point numbers."""

    name: str
    dtype: torch.dtype
    relative_error: float
    scheme: Scheme | None = None

    @property
    def dtypes(self) -> Mapping[str, torch.dtype]:
        """See Format."""
        return {"": self.dtype}

    def shapes(self, rows: int, cols: int) -> dict[str, tuple[int, ...]]:
        """See Format."""
        return {"": (rows, cols)}

    def quantise(self, weight: Tensor) -> dict[str, Tensor]:
        """See Format."""
        return {"": cast(weight, self.dtype)}

    def dequantise(self, parts: Mapping[str, Tensor]) -> Tensor:
        """See Format."""
        return parts[""].float()


@dataclass(frozen=True)
class Scaled:
    """Small numbers in blocks, with one scale a block: weight = number * scale."""

    name: str
    element: Element
    block: tuple[int, int | None]
    """Rows and columns of a block; None takes whole rows."""
    scale: ScaleType
    suffix: str
    """What the scale's name adds to the weight's."""
    scheme: Scheme
    relative_error: float
    whole_blocks: bool = False
    """Whether the columns have to be a multiple of the block's; otherwise the last block may be smaller."""

    @property
    def dtypes(self) -> Mapping[str, torch.dtype]:
        """See Format."""
        return {"": self.element.dtype, self.suffix: self.scale.dtype}

    def shapes(self, rows: int, cols: int) -> dict[str, tuple[int, ...]]:
        """See Format."""
        height, width = self.block[0], self.block[1] or cols
        if self.whole_blocks and cols % width:
            raise QuantisationError(
                f"{cols} columns are not a multiple of {width}, as {self.name} needs: "
                "keep this module in high precision"
            )
        return {
            "": (rows, cols // self.element.values_per_item),
            self.suffix: (-(-rows // height), -(-cols // width)),
        }

    def quantise(self, weight: Tensor) -> dict[str, Tensor]:
        """See Format."""
        names = self.shapes(*weight.shape)
        strips = [self._quantise_strip(strip.float()) for strip in weight.split(_STRIP)]
        return dict(zip(names, map(torch.cat, zip(*strips, strict=True)), strict=True))

    def dequantise(self, parts: Mapping[str, Tensor]) -> Tensor:
        """See Format."""
        stored, scales = parts[""], parts[self.suffix]
        rows, cols = stored.shape[0], stored.shape[1] * self.element.values_per_item
        if scales.shape != (expected := self.shapes(rows, cols)[self.suffix]):
            raise QuantisationError(f"scales of shape {tuple(scales.shape)} where {expected} is expected")
        blocks = self._blocks(self.element.decode(stored))
        blocks *= self.scale.value(scales)[:, None, :, None]
        return _matrix(blocks, rows, cols).contiguous()

    def _quantise_strip(self, strip: Tensor) -> tuple[Tensor, Tensor]:
        blocks = self._blocks(strip)
        maxima = torch.maximum(blocks.amax((1, 3)), -blocks.amin((1, 3)))
        _require_finite(maxima)
        scales = self.scale.choose(maxima, self.element.largest)
        scaled = blocks / self.scale.value(scales)[:, None, :, None]
        return self.element.encode(_matrix(scaled, *strip.shape)), scales

    def _blocks(self, matrix: Tensor) -> Tensor:
        """[rows, cols] as [row blocks, rows of each, column blocks, columns of each], padded with zeros."""
        height, width = self.block[0], self.block[1] or matrix.shape[1]
        below, right = -matrix.shape[0] % height, -matrix.shape[1] % width
        if below or right:
            matrix = pad(matrix, (0, right, 0, below))
        return matrix.unflatten(1, (-1, width)).unflatten(0, (-1, height))


def _matrix(blocks: Tensor, rows: int, cols: int) -> Tensor:
    return blocks.flatten(2).flatten(0, 1)[:rows, :cols]


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A floating-point tensor in another dtype.

    Raises QuantisationError when it holds a NaN, an infinity, or a number of 2**127 and more.
    """
    result = tensor.to(dtype)
    _require_finite(torch.stack(result.aminmax()))
    return result


def _require_finite(extremes: Tensor) -> None:
    if not (extremes.abs() < _TOO_LARGE).all():
        raise QuantisationError("holds NaN, infinity or a number of 2**127 and more")


# Plain formats have the names that config.json and engine.dtype have for them.
BF16 = Plain("bfloat16", torch.bfloat16, relative_error=2.0**-8)
FP32 = Plain("float32", torch.float32, relative_error=0)

FP8_BLOCK = Scaled("fp8_block", E4M3, (128, 128), FLOAT32, "_scale_inv", FP8, relative_error=16 / 448)
"""DeepSeek-V3's format (README_WEIGHTS.md of deepseek-ai/DeepSeek-V3; SGLang's Fp8LinearMethod).

The steps of e4m3 are 32 near its largest number, 448: half a step is the error. SGLang stacks [q; k; v] and
[gate; up], and refuses them in this format unless each has a multiple of 128 rows. Its Llama (0.5.23) looks
for scales under another name and goes on without: serve Llama models by channel.
"""

FP8_CHANNEL = Scaled("fp8_channel", E4M3, (1, None), FLOAT32, "_scale", FP8_CHANNELS, relative_error=16 / 448)
"""compressed-tensors' `float-quantized` by channel (SGLang's CompressedTensorsW8A8Fp8, and its w8a8_fp8)."""

INT8_CHANNEL = Scaled(
    "int8_channel", INT8, (1, None), FLOAT32, "_scale", INT8_CHANNELS, relative_error=0.5 / 127
)
"""compressed-tensors' `int-quantized` by channel (SGLang's CompressedTensorsW8A8Int8, and its w8a8_int8)."""

MXFP8 = Scaled("mxfp8", E4M3, (1, 32), E8M0, "_scale_inv", MX_FP8, relative_error=16 / 272, whole_blocks=True)
"""OCP Microscaling specification 1.0, in SGLang's names (its Fp8Config with quant_method mxfp8).

Blocks reach from 224 to 448 of e4m3; an error of 16 needs a weight of 272, between 256 and 288.
"""

MXFP4 = Scaled("mxfp4", E2M1, (1, 32), E8M0, "_scale", MX_FP4, relative_error=1 / 5, whole_blocks=True)
"""OCP Microscaling specification 1.0, in AMD Quark's names (SGLang's QuarkW4A4MXFP4).

Of SGLang's layouts for MXFP4 the one that dense layers and experts share; gpt-oss's has fused experts only.
Blocks reach from 3.5 to 7 of e2m1; an error of 1 needs a weight of 5, between 4 and 6.
"""

FORMATS: Mapping[str, Format] = MappingProxyType(
    {form.name: form for form in (BF16, FP32, FP8_BLOCK, FP8_CHANNEL, INT8_CHANNEL, MXFP8, MXFP4)}
)
"""All formats by name."""
