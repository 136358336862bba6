"""A rollout batch laid out by tokens."""

from dataclasses import replace

import pytest
import torch

from tasks.record.samples import Group, Problem, RolloutBatch, Sample, VersionSpan
from tasks.training.token_batch import lay_out

CPU = torch.device("cpu")
PROBLEM = Problem("p", "prompt", "1")


def sample(length, *spans):
    logprobs = tuple(-float(place) for place in range(length))
    return Sample((1, 2), tuple(range(length)), logprobs, tuple(VersionSpan(*span) for span in spans), "stop")


BATCH = RolloutBatch(
    9,
    (
        Group(PROBLEM, (sample(3, (7, 0, 2), (8, 2, 3)), sample(0), sample(2, (8, 0, 2)))),
        Group(PROBLEM, (sample(1, (8, 0, 1)),)),
        Group(PROBLEM, (sample(2, (6, 0, 1), (8, 1, 2)),)),
    ),
)


def test_columns_follow_the_samples():
    laid = lay_out(BATCH, [0.5, -1.0, None, None, 0.0], CPU)
    assert laid.count == 8
    assert laid.rollout_logprobs_N.tolist() == [0, -1, -2, 0, -1, 0, 0, -1]
    assert laid.advantages_N.tolist() == [0.5, 0.5, 0.5, 0, 0, 0, 0, 0]
    assert laid.versions_N.tolist() == [7, 7, 8, 8, 8, 8, 6, 8]
    assert laid.versions_N.dtype == torch.int64


def test_a_sample_is_used_that_has_an_advantage_and_tokens():
    laid = lay_out(BATCH, [0.5, -1.0, None, None, 0.0], CPU)
    assert [[row.offset for row in group] for group in laid.used] == [[0], [6]]
    assert laid.minibatches(2) == laid.used
    assert laid.minibatches(3) == laid.used
    assert laid.minibatches(1) == [[row for group in laid.used for row in group]]


def test_an_advantage_may_be_given_for_each_token():
    laid = lay_out(BATCH, [torch.tensor([1.0, 2.0, 3.0]), None, 4.0, None, None], CPU)
    assert laid.advantages_N.tolist() == [1, 2, 3, 4, 4, 0, 0, 0]
    with pytest.raises(RuntimeError, match="must match the existing size"):
        lay_out(BATCH, [torch.tensor([1.0, 2.0]), None, None, None, None], CPU)


@pytest.mark.parametrize("count", [4, 6])
def test_each_sample_wants_an_advantage(count):
    with pytest.raises(ValueError, match=f"{count} advantages for 5 samples"):
        lay_out(BATCH, [1.0] * count, CPU)


def test_an_empty_batch_has_no_tokens():
    laid = lay_out(replace(BATCH, groups=()), [], CPU)
    assert (laid.count, laid.used, laid.minibatches(2)) == (0, [], [])
