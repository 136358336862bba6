"""Element types: how a scaled number is stored in a byte or half of one, rounded to nearest, ties to even."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Convert = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Element:
    """A type of small numbers, stored one or two to an item."""

    dtype: torch.dtype
    """Of the stored items."""
    values_per_item: int
    """Neighbours in a row that share an item."""
    largest: float
    """The largest number, the same on both sides of zero."""
    encode: Convert
    """fp32 [..., n] to stored items [..., n / values_per_item].

    What rounds to more than the largest number must not come here: scales see to that.
    """
    decode: Convert
    """Inverse of encode, exact."""


def _pack_e2m1(values: Tensor) -> Tensor:
    """Sign, two bits of exponent and one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6; even columns in low bits.

    The steps are 0.5 up to 2, 1 up to 4 and 2 up to 6; a number's code is the sum of its whole steps in each
    stretch. Beyond 6 it saturates.
    """
    magnitudes = values.abs()
    codes = (2 * magnitudes).clamp_(max=4).round_()
    codes += magnitudes.clamp(2, 4).round_() - 2
    codes += (magnitudes / 2).clamp_(2, 3).round_() - 2
    signed = codes.to(torch.uint8) | values.signbit().to(torch.uint8) << 3
    low, high = signed.unflatten(-1, (-1, 2)).unbind(-1)
    return low | high << 4


_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _unpack_e2m1(stored: Tensor) -> Tensor:
    codes = torch.stack([stored & 0xF, stored >> 4], dim=-1).flatten(-2)
    return _E2M1.to(stored.device)[codes.int()]


E4M3 = Element(
    torch.float8_e4m3fn,
    1,
    448.0,
    lambda values: values.to(torch.float8_e4m3fn),
    lambda stored: stored.float(),
)
"""OFP8 E4M3 (OCP 8-bit Floating Point Specification 1.0), without infinity."""

INT8 = Element(
    torch.int8, 1, 127.0, lambda values: values.round().to(torch.int8), lambda stored: stored.float()
)
"""Symmetric: -128 is not used."""

E2M1 = Element(torch.uint8, 2, 6.0, _pack_e2m1, _unpack_e2m1)
"""FP4 of the OCP Microscaling specification 1.0, two to a byte."""
