"""Random streams and token draws."""

import pytest
import torch

from infra.engines.embedded.sampling import NonFiniteLogits, draw, uniforms


def test_a_stream_is_a_function_of_its_seed_alone() -> None:
    together = uniforms([3, -1, 2**63 - 1], 100)
    assert torch.equal(together[1:2], uniforms([-1], 100))
    assert torch.equal(together[:, :10], uniforms([3, -1, 2**63 - 1], 10))


def test_the_streams_stay_what_they_are() -> None:
    """Golden: other numbers would give every deterministic run other weights."""
    assert uniforms([0, 1], 2).tolist() == [
        [0.8833108082136426, 0.43152799704850997],  # SplitMix64's own first outputs for seed 0
        [0.7497482413580301, 0.37239342287916577],
    ]


def test_streams_are_uniform_and_unrelated() -> None:
    numbers = uniforms(range(1000), 100)
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    counts = torch.histc(numbers.flatten(), bins=50, min=0, max=1)
    expected = numbers.numel() / 50
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert chi_squared < 94  # 49 degrees of freedom, p = 1e-4
    for first, second in ((numbers[:-1], numbers[1:]), (numbers[:, :-1], numbers[:, 1:])):
        correlation = torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]
        assert abs(float(correlation)) < 0.015


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax_at_the_temperature(temperature: float) -> None:
    count = 40_000
    logits_V = torch.tensor([2.0, 0.0, -1.0, 1.0, -20.0])
    tokens, logprobs = draw(
        logits_V.expand(count, -1), torch.full((count,), temperature), uniforms(range(count), 1)[:, 0]
    )
    expected_V = torch.softmax(logits_V.double() / temperature, -1)
    frequency_V = torch.bincount(tokens, minlength=5) / count
    torch.testing.assert_close(frequency_V.double(), expected_V, atol=0.01, rtol=0)
    torch.testing.assert_close(logprobs.double(), expected_V.log()[tokens], atol=1e-6, rtol=0)


def test_the_ends_of_the_unit_interval_draw_possible_tokens() -> None:
    logits_BV = torch.tensor([[-torch.inf, 1.0, 1.0, -torch.inf]]).expand(2, -1)
    tokens, _ = draw(logits_BV, torch.ones(2), torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [1, 2]


def test_temperature_0_is_greedy_in_a_mixed_batch() -> None:
    logits_BV = torch.tensor([[0.0, 3.0, 2.0], [0.0, 3.0, 2.0]])
    tokens, logprobs = draw(logits_BV, torch.tensor([0.0, 1.0]), torch.tensor([0.99, 0.99]).double())
    assert tokens.tolist() == [1, 2]
    torch.testing.assert_close(logprobs, logits_BV.log_softmax(-1)[[0, 1], [1, 2]])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_broken_logits_are_an_error(temperature: float, value: float) -> None:
    logits_BV = torch.tensor([[0.0, 1.0], [0.0, value]])
    with pytest.raises(NonFiniteLogits):
        draw(logits_BV, torch.full((2,), temperature), torch.tensor([0.5, 0.5]).double())
