"""One sample on its way through the engine."""

from dataclasses import dataclass, field

from torch import Tensor

from infra.engines.protocol import FinishReason, SamplingParams, WeightVersionSpan

ABORTED = FinishReason(type="abort", message="Aborted")


@dataclass(slots=True, eq=False)
class Sequence:
    """A prompt with its sampling parameters, and what has come of it."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    score_from: int | None = None
    """First prompt position to score; None scores none."""
    wants_experts: bool = False
    """Keep which experts each token went to."""
    aborted: bool = False
    """Set from outside; the sequence then ends before its next token."""
    output: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[WeightVersionSpan] = field(default_factory=list)
    finish: FinishReason | None = None
    prompt_logprobs: list[float] | None = None
    """Log-probabilities at temperature 1 of prompt[score_from + 1:], given what precedes each."""
    routed_experts_TLE: Tensor | None = None
    """int32 [prompt + output - 1, layers, experts a token], where wanted and something was drawn."""
