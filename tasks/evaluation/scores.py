"""Scores over several sampled answers a problem."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tasks.reward.base import Grade


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Probability that k of the samples, drawn without replacement, hold a correct one.

    1 - C(n - c, k) / C(n, k) with n samples of which c are correct: the unbiased estimator of Chen et al.
    2021, "Evaluating Large Language Models Trained on Code" (arXiv:2107.03374), equation 1.
    """
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def majority(answers: Sequence[str | None]) -> str | None:
    """The most frequent answer; of equally frequent ones the first seen. None answers have no vote."""
    votes = Counter(answer for answer in answers if answer is not None)
    return max(votes, key=votes.__getitem__, default=None)


def majority_is_right(grades: Sequence[Grade]) -> bool:
    """Whether the most frequent answer of the graded responses is a right one."""
    winner = majority([grade.answer for grade in grades])
    return winner is not None and any(grade.is_right for grade in grades if grade.answer == winner)


def bootstrap_interval(values: Sequence[float], resamples: int) -> tuple[float, float]:
    """95 % percentile interval of the mean, resampling the values with a fixed seed."""
    array = np.asarray(values)
    rng = np.random.default_rng(0)
    means = [rng.choice(array, size=array.size).mean() for _ in range(resamples)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
