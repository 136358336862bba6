"""What an engine generated, read from its answer and checked."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from infra.engines import protocol
from infra.engines.errors import EngineFailed

UNSTAMPED = -1
"""Version of tokens whose engine carries no stamp, or none that is a number."""


class Span(NamedTuple):
    """Output tokens [start, end) were drawn from weight version `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One output. Log-probabilities are natural logs of softmax(logits / temperature)."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    spans: tuple[Span, ...]
    finish_reason: Literal["stop", "length", "abort"]
    routed_experts: npt.NDArray[np.int32] | None = field(default=None, compare=False, repr=False)
    """[prompt + output - 1, layers, topk]: the experts that each token but the last went to, when asked for
    and something was generated; a layer without experts holds zeros."""


def read_generation(result: protocol.GenerateResult, layers: int | None) -> Generation:
    """One output of /generate, with the routed experts of a model of so many layers unless None."""
    meta = result.meta_info
    return Generation(
        tokens=result.output_ids,
        logprobs=tuple(read_logprobs(meta.output_token_logprobs or ())),
        spans=tuple(Span(_version(span.version), span.start, span.end) for span in meta.weight_versions),
        finish_reason=meta.finish_reason.type,
        routed_experts=None if layers is None or not result.output_ids else _routed_experts(result, layers),
    )


def read_logprobs(entries: Sequence[protocol.TokenLogprob]) -> list[float]:
    """The log-probabilities of tokens; EngineFailed when one is not a number."""
    values = [value for value, _, _ in entries if value is not None]
    if len(values) < len(entries):
        raise EngineFailed("the engine gave a log-probability that is not a number: load sound weights")
    return values


def _routed_experts(result: protocol.GenerateResult, layers: int) -> npt.NDArray[np.int32]:
    encoded = result.meta_info.routed_experts
    if encoded is None:
        raise EngineFailed(
            "the engine did not report routed experts: "
            "serve a mixture of experts, an SGLang engine with engine.routed_experts"
        )
    experts = np.frombuffer(base64.b64decode(encoded), dtype=np.int32)
    tokens = result.meta_info.prompt_tokens + len(result.output_ids) - 1
    if experts.size == 0 or experts.size % (tokens * layers):
        raise EngineFailed(
            f"the engine reported {experts.size} routed experts for {tokens} tokens of {layers} layers"
        )
    return experts.reshape(tokens, layers, -1)


def _version(stamp: str) -> int:
    try:
        return int(stamp)
    except ValueError:
        return UNSTAMPED
