"""What an alignment check finds: how far apart trainer and engines are on the same tokens, and where."""

from math import inf, isnan

from pydantic import BaseModel, ConfigDict

from configs.errors import RunFailure
from tasks.record.stored import Record


class Misaligned(RunFailure):
    """Trainer and engine disagree about the same tokens by more than the tolerance."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class TokenDifference(_Part):
    """A token of the probe as trainer and engine score it, nats."""

    sequence: int
    """Number of its sequence in the probe, from 0."""
    position: int
    """Its place in the sequence, from 0; the first token is never scored."""
    token: int
    text: str | None = None
    """What the token stands for; None until a tokenizer was asked."""
    trainer: float
    engine: float

    @property
    def difference(self) -> float:
        """|trainer - engine|, nats."""
        return abs(self.trainer - self.engine)


class EngineAlignment(_Part):
    """An engine against the trainer: |difference| of log-probabilities over the probe's tokens, nats."""

    engine: str
    mean: float
    p99: float
    """99 % of the tokens differ by at most this."""
    max: float
    worst: tuple[TokenDifference, ...]
    """Tokens with the largest differences, the largest first."""


class ModuleDifference(_Part):
    """What a module of the trainer puts out, against the same module of the exported checkpoint."""

    module: str
    """By its name in the checkpoint, such as `model.layers.3`."""
    max_abs: float
    """Largest |trainer - checkpoint| of all values."""
    relative: float
    """The same, over the checkpoint's largest |value|."""


class LayerAlignment(_Part):
    """Which side is off, told by the exported checkpoint as transformers computes it in fp32."""

    tolerance: float
    """Largest relative difference of a module's output that number formats explain."""
    modules: tuple[ModuleDifference, ...]
    """In the order of the computation."""
    trainer: float
    """Largest |trainer - checkpoint| log-probability of the probe's tokens, nats."""
    engines: dict[str, float]
    """Largest |engine - checkpoint| log-probability of the same tokens by engine, nats."""

    @property
    def first(self) -> str | None:
        """The first module whose output differs beyond the tolerance."""
        return next((each.module for each in self.modules if not each.relative <= self.tolerance), None)


class AlignmentReport(Record):
    """All engines against the trainer, by the log-probabilities of fixed token sequences."""

    version: int
    tolerance: float
    """Largest difference that is in order, nats."""
    tokens: int
    """Number of tokens that were scored."""
    engines: tuple[EngineAlignment, ...]
    layers: LayerAlignment | None = None
    """Only where it was asked for."""

    @property
    def max(self) -> float:
        """Largest difference of any engine, nats; nan where one is."""
        return _farthest(self.engines).max

    @property
    def aligned(self) -> bool:
        """Whether every engine is within the tolerance; nan is not."""
        return self.max <= self.tolerance

    def require_aligned(self) -> None:
        """Raise Misaligned, with the farthest engine and its worst token, unless aligned."""
        if self.aligned:
            return
        engine = _farthest(self.engines)
        worst = engine.worst[0]
        text = "" if worst.text is None else f" {worst.text!r}"
        raise Misaligned(
            f"log-probabilities of {engine.engine} differ from the trainer's by {engine.max:.3g}, more than "
            f"publish.probe_tolerance {self.tolerance:g}: worst at token {worst.token}{text} (sequence "
            f"{worst.sequence}, position {worst.position}): trainer {worst.trainer:.4g}, "
            f"engine {worst.engine:.4g}"
        )


def _farthest(engines: tuple[EngineAlignment, ...]) -> EngineAlignment:
    return max(engines, key=lambda engine: inf if isnan(engine.max) else engine.max)
