"""How the policy is updated."""

from typing import Literal

from pydantic import Field

from configs.base import Kind, one_of


class AlgorithmSection(Kind):
    """What algorithms of every kind have; the owner is a tasks.training.algorithms.base.Algorithm."""

    minibatches: int = Field(default=1, ge=1)
    """Optimizer steps that one rollout batch is split into."""
    tis_cap: float | None = Field(default=2.0, gt=0)
    """Cap of the truncated importance weight trainer / rollout of each token; None turns it off."""


class DapoAlgorithm(AlgorithmSection):
    """GRPO advantages with the DAPO loss: token mean, asymmetric clip, no KL term, token TIS."""

    kind: Literal["dapo"] = "dapo"
    owner = "tasks.training.algorithms.dapo:Dapo"
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The ratio is clipped from below at 1 - clip_low."""
    clip_high: float = Field(default=0.28, gt=0)
    """The ratio is clipped from above at 1 + clip_high."""


AlgorithmConfig = one_of(AlgorithmSection, DapoAlgorithm)
