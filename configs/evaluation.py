"""Offline evaluation."""

from pydantic import Field

from configs.base import Section


class EvaluationConfig(Section):
    """Greedy and sampled accuracy on held-out problems, with bootstrap intervals."""

    problems: int = Field(default=200, ge=1)
    """Held-out problems to draw."""
    samples: int = Field(default=4, ge=1)
    """Sampled answers a problem: the k of avg@k, pass@k and maj@k."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of the k answers; one greedy answer a problem is taken besides."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Longest answer, tokens; rollout.max_new_tokens when absent."""
    bootstrap: int = Field(default=1000, ge=100)
    """Resamples of the 95 % interval."""
    engines: int | None = Field(default=None, ge=1)
    """Engines that an evaluation starts for itself, laid out as `engine` says and on free ports, so that the
    rollout engines stay as they are; it takes those when absent."""
    at_start: bool = True
    """Also evaluate version 0, so that the gain can be read off."""
    every: int | None = Field(default=None, ge=1)
    """Steps between evaluations during training; None evaluates at the end only."""
