"""Types of scales: the factor that a block's stored numbers are multiplied with."""

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp

import torch
from torch import Tensor

_SMALLEST = 2.0**-126
"""Smallest scale: fp32's smallest normal number, since kernels may take subnormal ones for zero."""


@dataclass(frozen=True)
class ScaleType:
    """How a scale is chosen and stored."""

    dtype: torch.dtype
    """Of the stored scales."""
    choose: Callable[[Tensor, float], Tensor]
    """(largest magnitude in each block, largest number of the element type) to stored scales."""
    value: Callable[[Tensor], Tensor]
    """Stored scales to fp32 factors."""


def _fitted(maxima: Tensor, largest: float) -> Tensor:
    """A block's largest magnitude becomes the element type's largest number."""
    return (maxima / largest).clamp_min(_SMALLEST)


def _power_of_two(maxima: Tensor, largest: float) -> Tensor:
    """E8M0: exponent + 127 of the power of two that brings a block's largest magnitude below 1.75 * 2**e.

    2**e is the largest power of two of the element type: 256 in e4m3, 4 in e2m1. Significands from 1.75 on
    count for the next power of two. So e4m3 (largest 448 = 1.75 * 256) never saturates, and e2m1 only what
    lies from 6 to 7. That is the rule of AMD Quark (`even`), AITER and compressed-tensors; to take the floor,
    as the Microscaling specification 1.0 describes (section 6.3), would cut up to an eighth off the largest
    weights of e4m3 blocks and a quarter off those of e2m1 blocks.
    """
    exponents = (maxima.view(torch.int32) + (1 << 21)) >> 23
    return (exponents - (frexp(largest)[1] - 1)).clamp_min_(1).to(torch.uint8)


def _power_value(stored: Tensor) -> Tensor:
    return (stored.int() << 23).view(torch.float32)


FLOAT32 = ScaleType(torch.float32, _fitted, lambda stored: stored)
E8M0 = ScaleType(torch.uint8, _power_of_two, _power_value)
"""Powers of two, as fp32's exponent bits (OCP Microscaling specification 1.0); 0 and 255 are not used."""
