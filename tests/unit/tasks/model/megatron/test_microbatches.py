"""Rows, and the fixed composition of microbatches."""

import pytest
import torch

from tasks.model.megatron.microbatches import deal, to_rows


@pytest.fixture
def rows():
    lengths = [9, 4, 30, 4, 12, 7, 21, 5]
    return to_rows([(tuple(range(100, 100 + length)), 2) for length in lengths])


def places(microbatches):
    return torch.cat([microbatch.places_N for microbatch in microbatches]).tolist()


@pytest.mark.parametrize("budget", [8, 40, 1000])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_scored_token_is_dealt_once_and_within_the_budget(rows, budget, ranks):
    shares = [deal(rows, budget, rank, ranks) for rank in range(ranks)]
    total = sum(row.count for row in rows)
    assert sorted(place for share in shares for place in places(share)) == list(range(total))
    for microbatch in (microbatch for share in shares for microbatch in share):
        assert microbatch.tokens_BT.numel() <= budget or len(microbatch.tokens_BT) == 1


def test_positions_predict_their_targets(rows):
    for microbatch in deal(rows, 60, 0, 1):
        following = microbatch.tokens_BT.flatten()[microbatch.positions_N + 1]
        assert torch.equal(following, microbatch.targets_N)


def test_the_composition_does_not_depend_on_the_order_of_equal_calls(rows):
    first, second = deal(rows, 40, 1, 2), deal(list(reversed(rows)), 40, 1, 2)
    assert all(
        torch.equal(a, b) for x, y in zip(first, second, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_rows_without_a_scored_token_are_left_out():
    rows = to_rows([((1, 2), 2), ((1, 2, 3), 2)])
    [microbatch] = deal(rows, 64, 0, 1)
    assert microbatch.tokens_BT.tolist() == [[1, 2, 3]]


def test_a_sequence_needs_something_before_its_first_scored_token():
    with pytest.raises(ValueError, match="sequence 1 has no token before"):
        to_rows([((1, 2), 1), ((1, 2), 0)])
