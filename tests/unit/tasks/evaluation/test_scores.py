"""avg@k, pass@k, maj@k and bootstrap intervals against independent computations."""

from itertools import combinations

import pytest

from tasks.evaluation.scores import bootstrap_interval, majority, majority_is_right, pass_at_k
from tasks.reward.base import Grade


@pytest.mark.parametrize("correct", range(6))
@pytest.mark.parametrize("k", [1, 2, 5])
def test_pass_at_k_is_the_share_of_draws_with_a_correct_one(correct, k):
    draws = list(combinations([True] * correct + [False] * (5 - correct), k))
    assert pass_at_k(5, correct, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["3", "5", "5"], "5"),
        (["3", "5", "5", "3"], "3"),
        ([None, None, None, "7"], "7"),
        ([None, None], None),
        ([], None),
        (["0", None, "0"], "0"),
    ],
)
def test_majority(answers, winner):
    assert majority(answers) == winner


RIGHT, WRONG, NONE = Grade(1.0, "5"), Grade(0.0, "3"), Grade(0.0)


@pytest.mark.parametrize(
    ("grades", "right"),
    [
        ([RIGHT, WRONG, RIGHT], True),
        ([WRONG, RIGHT, WRONG], False),
        ([RIGHT, WRONG, WRONG, RIGHT], True),
        ([NONE, NONE, RIGHT], True),
        ([NONE, Grade(ungraded_because="it broke")], False),
        ([Grade(0.5, "5"), Grade(0.5, "5"), RIGHT], True),
    ],
)
def test_the_majority_is_right_when_its_answer_earned_the_full_reward(grades, right):
    assert majority_is_right(grades) is right


def test_bootstrap_interval_is_fixed_and_close_to_the_normal_one():
    values = [1.0] * 60 + [0.0] * 140
    low, high = bootstrap_interval(values, 2000)
    margin = 1.96 * (0.3 * 0.7 / 200) ** 0.5
    assert (low, high) == pytest.approx((0.3 - margin, 0.3 + margin), abs=0.01)
    assert bootstrap_interval(values, 2000) == (low, high)
    assert bootstrap_interval([1.0] * 5, 100) == (1.0, 1.0)
