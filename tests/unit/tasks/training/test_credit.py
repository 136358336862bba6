"""A version is credited with its share of each sample, by tokens, and only with its own."""

import random
from dataclasses import replace
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tasks.record.commits import StepCommit, credits_of
from tasks.record.credit import VersionCredit
from tasks.record.samples import Group, Problem, RolloutBatch, Sample, VersionSpan
from tasks.training.credit import credits_in
from tasks.training.token_batch import lay_out
from tests.support.training import graded_batch


def sample(reward: float | None, *parts: tuple[int, int]) -> Sample:
    """A response whose parts are (version, number of tokens)."""
    spans, end = [], 0
    for version, tokens in parts:
        spans.append(VersionSpan(version, end, end := end + tokens))
    return Sample((1, 2), (5,) * end, (-1.0,) * end, tuple(spans), "stop", reward)


def batch_of(*samples: Sample, step: int = 1) -> RolloutBatch:
    return RolloutBatch(step, (Group(Problem("p", "prompt", "1"), samples),))


def versions_of(batch: RolloutBatch) -> Tensor:
    """The version of each response token."""
    return lay_out(batch, [None for _ in batch.samples()], torch.device("cpu")).versions_N


def credited(batch: RolloutBatch, abs_diff: list[float], entropy: list[float]) -> dict[int, VersionCredit]:
    found = credits_in(batch, versions_of(batch), torch.tensor(abs_diff), torch.tensor(entropy))
    assert [credit.version for credit in found] == sorted({credit.version for credit in found})
    return {credit.version: credit for credit in found}


def test_one_version_has_the_figures_of_the_batch() -> None:
    batch = batch_of(sample(1.0, (4, 3)), sample(0.0, (4, 1)))
    assert credited(batch, [1.0, 2.0, 3.0, 6.0], [0.25, 0.25, 0.25, 1.25]) == {
        4: VersionCredit(
            version=4,
            tokens=4,
            samples=2.0,
            graded=2.0,
            reward=0.5,
            length=2.0,
            divergence=3.0,
            entropy=0.5,
        )
    }


def test_versions_share_a_sample_by_its_tokens() -> None:
    batch = batch_of(sample(1.0, (4, 1), (5, 3)), sample(0.0, (5, 2)))
    four, five = credited(batch, [8.0, 1.0, 1.0, 1.0, 2.0, 0.0], [0.5, 2.0, 2.0, 2.0, 1.0, 3.0]).values()
    assert (four.tokens, four.samples, four.graded) == (1, 0.25, 0.25)
    assert (four.reward, four.length, four.divergence, four.entropy) == (1.0, 4.0, 8.0, 0.5)
    assert (five.tokens, five.samples, five.graded) == (5, 1.75, 1.75)
    assert five.reward == pytest.approx(0.75 / 1.75)
    assert five.length == pytest.approx((0.75 * 4 + 2) / 1.75)
    assert (five.divergence, five.entropy) == (1.0, 2.0)


def test_a_version_that_comes_back_within_a_sample_has_both_spans() -> None:
    four, five = credited(
        batch_of(sample(1.0, (4, 1), (5, 2), (4, 1))), [1.0, 5.0, 7.0, 3.0], [0.0] * 4
    ).values()
    assert (four.tokens, four.samples, four.divergence) == (2, 0.5, 2.0)
    assert (five.tokens, five.samples, five.divergence) == (2, 0.5, 6.0)


def test_a_sample_without_a_reward_counts_in_all_but_the_reward() -> None:
    batch = batch_of(sample(None, (4, 3)), sample(0.5, (4, 1)))
    (credit,) = credited(batch, [1.0] * 4, [0.0] * 4).values()
    assert (credit.samples, credit.graded, credit.reward, credit.length) == (2.0, 1.0, 0.5, 2.0)


def test_without_any_reward_there_is_none() -> None:
    (credit,) = credited(batch_of(sample(None, (4, 2))), [1.0] * 2, [0.0] * 2).values()
    assert (credit.graded, credit.reward, credit.tokens) == (0, None, 2)


def test_a_response_without_tokens_is_of_no_version() -> None:
    batch = batch_of(sample(1.0, (4, 0)), sample(1.0), sample(0.5, (5, 2), (6, 0)))
    credits = credited(batch, [1.0, 1.0], [0.0, 0.0])
    assert list(credits) == [5]
    assert (credits[5].samples, credits[5].reward) == (1.0, 0.5)
    assert credited(batch_of(sample(1.0, (4, 0))), [], []) == {}


def test_samples_of_all_groups_are_told_apart_by_their_places() -> None:
    batch = graded_batch(1)
    counts = [len(each.response_tokens) for each in batch.samples()]
    abs_diff = torch.arange(float(sum(counts)))
    remaining = (
        replace(each, spans=(VersionSpan(number % 2, 0, counts[number]),))
        for number, each in enumerate(batch.samples())
    )
    groups = tuple(replace(group, samples=tuple(islice(remaining, 4))) for group in batch.groups)
    mixed = RolloutBatch(1, groups)
    even, odd = credits_in(mixed, versions_of(mixed), abs_diff, abs_diff)
    parts = abs_diff.split(counts)
    for credit, first in ((even, 0), (odd, 1)):
        mine = torch.cat(parts[first::2])
        assert (credit.tokens, credit.divergence) == (len(mine), pytest.approx(mine.mean().item()))


def test_means_are_taken_in_float64() -> None:
    abs_diff = [1.0] + [6e-8] * 4  # in float32 each would be lost
    (credit,) = credited(batch_of(sample(1.0, (4, 5))), abs_diff, [0.0] * 5).values()
    assert credit.divergence == pytest.approx((1 + 2.4e-7) / 5, rel=1e-9)


samples = st.builds(
    lambda reward, parts: sample(reward, *parts),
    st.sampled_from([None, 0.0, 0.5, 1.0]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=3),
)


def measured(batch: RolloutBatch, seed: int) -> tuple[Tensor, Tensor]:
    rng = random.Random(seed)
    tokens = sum(len(each.response_tokens) for each in batch.samples())
    return torch.tensor([rng.random() for _ in range(tokens)]), torch.tensor(
        [rng.random() for _ in range(tokens)]
    )


@given(st.lists(samples, max_size=4), st.lists(samples, max_size=4))
def test_credits_of_two_batches_add_up_to_those_of_both_together(
    first: list[Sample], second: list[Sample]
) -> None:
    one, two = batch_of(*first), batch_of(*second)
    (diff_1, entropy_1), (diff_2, entropy_2) = measured(one, 1), measured(two, 2)
    added = credits_of(
        StepCommit.model_construct(credits=credits)  # type: ignore[call-arg]
        for credits in (
            credits_in(one, versions_of(one), diff_1, entropy_1),
            credits_in(two, versions_of(two), diff_2, entropy_2),
        )
    )
    both = batch_of(*first, *second)
    measured_N = torch.cat([diff_1, diff_2]), torch.cat([entropy_1, entropy_2])
    together = credits_in(both, versions_of(both), *measured_N)
    assert sorted(added) == [credit.version for credit in together]
    for credit in together:
        assert added[credit.version].model_dump() == pytest.approx(credit.model_dump())
