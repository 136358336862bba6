"""Advantages of the samples of a group."""

from collections.abc import Sequence
from statistics import fmean, stdev

EPSILON = 1e-6


def grpo_advantages(rewards: Sequence[float | None]) -> tuple[float | None, ...] | None:
    """Group-relative advantages, A_i = (R_i - mean(R)) / (std(R) + 1e-6).

    Mean and sample standard deviation (n - 1) are taken over the graded samples; an ungraded one (None) gets
    no advantage. None when the graded rewards have no spread, fewer than two of them included: such a group
    holds no signal and is left out (the zero-variance filter of DAPO).

    Source: Shao et al., DeepSeekMath (GRPO), arXiv:2402.03300, section 4.1; Yu et al., DAPO,
    arXiv:2503.14476, section 3.2.
    """
    graded = [reward for reward in rewards if reward is not None]
    if len(set(graded)) < 2:
        return None
    mean, std = fmean(graded), stdev(graded)
    return tuple(None if reward is None else (reward - mean) / (std + EPSILON) for reward in rewards)
