"""Formats against float64 references that walk block by block over every number that a format has."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.quantisation.elements import E2M1, E4M3, INT8
from infra.quantisation.errors import QuantisationError
from infra.quantisation.formats import FORMATS, FP8_BLOCK, MXFP4, MXFP8, Scaled

E2M1_NUMBERS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
E4M3_NUMBERS = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
INT8_NUMBERS = torch.arange(128, dtype=torch.float64)
NUMBERS = {E2M1: E2M1_NUMBERS, E4M3: E4M3_NUMBERS, INT8: INT8_NUMBERS}
SCALED = [form for form in FORMATS.values() if isinstance(form, Scaled)]
named = pytest.mark.parametrize("form", SCALED, ids=lambda form: form.name)
every = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)


def blocks_of(form: Scaled, rows: int, cols: int) -> list[tuple[slice, slice]]:
    height, width = form.block[0], form.block[1] or cols
    return [
        (slice(row, row + height), slice(col, col + width))
        for row in range(0, rows, height)
        for col in range(0, cols, width)
    ]


def nearest(numbers: torch.Tensor, magnitudes: torch.Tensor) -> torch.Tensor:
    """The nearest of the numbers; of two as near, the one whose last bit is 0. float64."""
    distance = (magnitudes[..., None] - numbers).abs()
    least = distance.amin(-1, keepdim=True)
    positions = torch.arange(len(numbers)).expand_as(distance)
    odd_last = torch.where(distance == least, positions % 2 * len(numbers) + positions, 2 * len(numbers))
    return numbers[odd_last.argmin(-1)]


def reference(form: Scaled, weight: torch.Tensor) -> torch.Tensor:
    """What the format makes of a weight, with scales as documented. float64."""
    result = torch.empty_like(weight, dtype=torch.float64)
    for block in blocks_of(form, *weight.shape):
        part = weight[block].double()
        largest = part.abs().max()
        if form.scale.dtype == torch.float32:
            scale = (largest.float() / form.element.largest).clamp_min(2.0**-126).double()
            scaled = (weight[block].float() / scale.float()).double()
        else:
            limit = 1.75 * 2 ** int(math.log2(form.element.largest))
            scale = 2.0**-126  # type: ignore[assignment]
            while largest.item() >= limit * scale:
                scale *= 2
            scaled = part / scale
        result[block] = nearest(NUMBERS[form.element], scaled.abs()) * scaled.sign() * scale
    return result


def weights(rows: int, cols: int, seed: int, size: float = 0.02) -> torch.Tensor:
    """Normal, with a few outliers and a magnitude of its own for each row."""
    random = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, cols, generator=random) * size
    weight *= torch.randn(rows, 1, generator=random).exp()
    outliers = torch.rand(rows, cols, generator=random) < 0.01
    return torch.where(outliers, weight * 10, weight)


def returned(form, weight: torch.Tensor) -> torch.Tensor:
    return form.dequantise(form.quantise(weight))


@named
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 32), (130, 160)])
def test_a_weight_becomes_the_nearest_numbers_that_the_format_has(form, shape, dtype):
    weight = weights(shape[0], shape[1], seed=1).to(dtype)

    assert torch.equal(returned(form, weight), reference(form, weight).float())


@every
@settings(max_examples=12, deadline=None)
@given(
    rows=st.integers(1, 140),
    groups=st.integers(1, 6),
    seed=st.integers(0, 1000),
    exponent=st.integers(-116, 120),
)
def test_the_error_is_within_the_promised_bound(form, rows, groups, seed, exponent):
    weight = weights(rows, 32 * groups, seed, size=1.0).clamp(-64, 64) * 2.0**exponent
    weight[0, 0] = 2.0**exponent
    error = (returned(form, weight).double() - weight.double()).abs()

    blocks = blocks_of(form, *weight.shape) if isinstance(form, Scaled) else [(slice(None), slice(None))]
    for block in blocks:
        largest = weight[block].double().abs().max()
        assert error[block].max() <= (form.relative_error + 2**-22) * largest + 2.0**-122


@pytest.mark.parametrize(
    ("form", "worst"),
    [
        (FP8_BLOCK, [448.0, 272]),
        (MXFP8, [272.0, 0]),
        (MXFP4, [5.0, 0]),
        (FORMATS["int8_channel"], [127, 0.5]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_promised_bound_is_reached(form, worst):
    weight = torch.zeros(1, 32)
    weight[0, :2] = torch.tensor(worst)
    error = (returned(form, weight) - weight).abs().max() / weight.max()

    assert error == pytest.approx(form.relative_error, rel=1e-6)


@pytest.mark.parametrize("element", NUMBERS, ids=["e2m1", "e4m3", "int8"])
def test_every_number_of_an_element_type_comes_back_and_ties_go_to_even(element):
    numbers = NUMBERS[element].float()
    ties = (numbers[1:] + numbers[:-1]) / 2
    values = torch.cat([numbers, ties, ties.nextafter(torch.tensor(0.0)), ties.nextafter(torch.tensor(1e9))])
    values = torch.cat([values, values[-1:]])[None] if len(values) % 2 else values[None]

    for signed in (values, -values):
        decoded = element.decode(element.encode(signed)).double()
        assert torch.equal(decoded.abs(), nearest(NUMBERS[element], values.double()))
        assert torch.equal(decoded.sign(), decoded.abs().sign() * signed.sign())


def test_e2m1_saturates_and_keeps_the_even_column_in_the_low_bits():
    stored = E2M1.encode(torch.tensor([[6.9, -0.5, -0.0, 1.0]]))

    assert stored.tolist() == [[0x97, 0x28]]
    assert E2M1.decode(stored).tolist() == [[6.0, -0.5, -0.0, 1.0]]


@every
def test_tensors_are_as_announced(form):
    weight = weights(130, 160, seed=2)
    parts = form.quantise(weight)

    assert {end: part.dtype for end, part in parts.items()} == dict(form.dtypes)
    assert {end: tuple(part.shape) for end, part in parts.items()} == form.shapes(130, 160)
    assert all(part.is_contiguous() for part in parts.values())


@pytest.mark.parametrize("shape", [(1, 1), (129, 130)])
@pytest.mark.parametrize("name", ["fp8_block", "fp8_channel", "int8_channel"])
def test_sizes_need_not_be_multiples_of_the_block(name, shape):
    form = FORMATS[name]
    assert isinstance(form, Scaled)
    weight = weights(shape[0], shape[1], seed=3)

    assert torch.equal(returned(FORMATS[name], weight), reference(form, weight).float())


@pytest.mark.parametrize("form", [MXFP8, MXFP4], ids=lambda form: form.name)
def test_microscaling_has_only_whole_blocks(form):
    with pytest.raises(QuantisationError, match="100 columns are not a multiple of 32"):
        form.quantise(torch.ones(4, 100))


@every
def test_zeros_stay_zeros(form):
    weight = torch.zeros(200, 64)
    weight[0, 32:] = -0.0

    parts = form.quantise(weight)

    assert torch.equal(form.dequantise(parts), weight)
    assert all(part.float().isfinite().all() for part in parts.values())


@every
@pytest.mark.parametrize("magnitude", [1e-45, 2.0**-126, 1e-30, 1e30, 1.6e38])
def test_the_smallest_and_the_largest_numbers_stay_finite(form, magnitude):
    weight = torch.full((2, 64), magnitude)
    weight[0, :32] *= -0.5

    result = returned(form, weight)

    largest = weight.double().abs().max()
    assert result.isfinite().all()
    assert (result - weight.double()).abs().max() <= max((form.relative_error + 2**-22) * largest, 2.0**-122)


@every
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2.0**127])
def test_what_is_not_finite_is_refused(form, value):
    weight = torch.ones(200, 64)
    weight[150, 3] = value

    with pytest.raises(QuantisationError, match="NaN, infinity"):
        form.quantise(weight)


@named
def test_a_scale_follows_its_own_block_only(form):
    weight = weights(256, 256, seed=4)
    changed = weight.clone()
    changed[0, 0] = 100.0
    before, after = form.quantise(weight), form.quantise(changed)

    differs = before[form.suffix] != after[form.suffix]
    assert differs.nonzero().tolist() == [[0, 0]]


@named
def test_scales_of_another_shape_are_refused(form):
    parts = form.quantise(weights(256, 256, seed=5))
    parts[form.suffix] = parts[form.suffix][1:]

    with pytest.raises(QuantisationError, match="scales of shape"):
        form.dequantise(parts)


def test_the_weight_is_left_alone():
    weight = weights(130, 64, seed=6)
    before = weight.clone()

    for form in FORMATS.values():
        form.quantise(weight)

    assert torch.equal(weight, before)
