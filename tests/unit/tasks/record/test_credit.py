"""Credits of several batches give what the batches together would."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.record.commits import StepCommit, credits_of
from tasks.record.credit import VersionCredit
from tests.support.versions import credit_of


def credit(samples: int = 2, **changes: float | None) -> VersionCredit:
    """Of `samples` samples, each graded and of ten tokens."""
    fields = {"tokens": 10 * samples, "samples": samples, "graded": samples}
    figures = {"reward": 0.5, "length": 10.0, "divergence": 1e-6, "entropy": 0.4}
    return VersionCredit.model_validate({"version": 3, **fields, **figures, **changes})


def test_means_are_weighted_by_what_they_are_means_of() -> None:
    one = VersionCredit(
        version=3, tokens=10, samples=1, graded=1, reward=1.0, length=10, divergence=1.0, entropy=2.0
    )
    many = VersionCredit(
        version=3, tokens=30, samples=9, graded=3, reward=0.0, length=20, divergence=5.0, entropy=6.0
    )
    assert one + many == VersionCredit(
        version=3,
        tokens=40,
        samples=10,
        graded=4,
        reward=0.25,  # by graded samples: not 0.5, 0.1 by samples
        length=19.0,  # by samples
        divergence=4.0,  # by tokens
        entropy=5.0,
    )


def test_without_graded_samples_there_is_no_reward_and_it_does_not_count_as_one() -> None:
    ungraded = credit(graded=0, reward=None)
    assert (ungraded + ungraded).reward is None
    assert (ungraded + credit(reward=1.0)).reward == (credit(reward=1.0) + ungraded).reward == 1.0


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 4)), min_size=2, max_size=5))
def test_the_order_does_not_matter(parts: list[tuple[int, int]]) -> None:
    made = [credit(samples, reward=quarter / 4, length=samples / 2) for samples, quarter in parts]
    (forth,) = credits_of(map(committed, made)).values()
    (back,) = credits_of(map(committed, reversed(made))).values()
    assert forth.model_dump() == pytest.approx(back.model_dump())


def committed(*credits: VersionCredit) -> StepCommit:
    """A commit of which only the credits are known."""
    return StepCommit.model_construct(credits=credits)  # type: ignore[call-arg]


def test_every_version_gets_what_all_commits_credit_it_with() -> None:
    first, second = committed(credit_of(0, 1)), committed(credit_of(0, 2), credit_of(1, 2))
    credited = credits_of([committed(), first, second])
    assert credited == {0: credit_of(0, 1) + credit_of(0, 2), 1: credit_of(1, 2)}
    assert credits_of([]) == {}


def test_the_metrics_are_the_figures_and_leave_out_a_reward_that_is_none() -> None:
    assert credit().metrics() == {
        "version/reward": 0.5,
        "version/length": 10.0,
        "version/divergence": 1e-6,
        "version/entropy": 0.4,
    }
    assert "version/reward" not in credit(graded=0, reward=None).metrics()


def test_figures_that_are_not_finite_survive_json() -> None:
    odd = credit(divergence=math.inf)
    assert VersionCredit.model_validate_json(odd.model_dump_json()) == odd


def test_a_field_of_another_release_is_refused() -> None:
    with pytest.raises(ValidationError):
        VersionCredit.model_validate({**credit().model_dump(), "kl": 0.0})
