"""What a weight version is credited with: the responses that it generated, whatever was trained on them."""

from pydantic import BaseModel, ConfigDict


class VersionCredit(BaseModel):
    """A version's share of one or more batches. A sample of several versions counts by its tokens of each."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    version: int
    tokens: int
    """Response tokens that the version generated."""
    samples: float
    """Its share of samples: each counts by the share of its tokens that the version generated."""
    graded: float
    """The same of samples with a reward."""
    reward: float | None
    """Mean over its share of graded samples; None without any."""
    length: float
    """Mean response length over its share of samples, tokens."""
    divergence: float
    """Mean |trainer - rollout| log-probability of its tokens, nats."""
    entropy: float
    """Mean entropy of the trainer's distribution at its tokens, nats."""

    def metrics(self) -> dict[str, float]:
        """The figures under the names that they have in MLflow; a reward that is None is absent."""
        figures = {} if self.reward is None else {"reward": self.reward}
        figures |= {"divergence": self.divergence, "length": self.length, "entropy": self.entropy}
        return {f"version/{name}": value for name, value in figures.items()}

    def __add__(self, other: "VersionCredit") -> "VersionCredit":
        """Both together, of the same version."""
        graded = self.graded + other.graded
        rewarded = (self.reward or 0.0) * self.graded + (other.reward or 0.0) * other.graded
        return VersionCredit(
            version=self.version,
            tokens=self.tokens + other.tokens,
            samples=self.samples + other.samples,
            graded=graded,
            reward=rewarded / graded if graded else None,
            length=_mean(self.length, self.samples, other.length, other.samples),
            divergence=_mean(self.divergence, self.tokens, other.divergence, other.tokens),
            entropy=_mean(self.entropy, self.tokens, other.entropy, other.tokens),
        )


def _mean(one: float, weight: float, other: float, other_weight: float) -> float:
    return (one * weight + other * other_weight) / (weight + other_weight)
