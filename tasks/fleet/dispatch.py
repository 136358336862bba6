"""Spreading generate requests over engines, and redoing elsewhere what an engine left unanswered."""

import contextlib
import hashlib
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from infra.engines.client import (
    UNSTAMPED,
    EngineClient,
    EngineError,
    EngineTimeout,
    EngineUnreachable,
    Generation,
    SamplingParams,
)
from infra.engines.router import RouterClient, Servers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """One prompt and how to continue it."""

    prompt: list[int]
    params: SamplingParams


Call = Sequence[Request]
"""Requests that an engine receives together."""


def sampling_seed(*names: int | str) -> int:
    """A seed that follows from the names alone; 31 bits, since SGLang releases held it in an int32."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def dispatch(servers: Servers, requests: Sequence[Request], per_call: int) -> list[Generation]:
    """Generations in the order of the requests, `per_call` requests a call.

    The engines take the calls in turn and work side by side. Which requests share a call does not depend
    on the engines: a call that an engine left unanswered is redone, composed the same, on one that still
    answers. A router does the like, with a call for each request. Raises the last EngineUnreachable or
    EngineTimeout when no engine is left.
    """
    if isinstance(servers, RouterClient):
        return servers.generate(
            [request.prompt for request in requests], [request.params for request in requests]
        )
    calls = {first: requests[first : first + per_call] for first in range(0, len(requests), per_call)}
    answered: dict[int, list[Generation]] = {}
    alive = list(servers)
    if not alive:
        raise EngineUnreachable("no engine is serving: nothing to send prompts to")
    while len(answered) < len(calls):
        unanswered = [first for first in calls if first not in answered]
        shares = [
            {first: calls[first] for first in unanswered[number :: len(alive)]}
            for number in range(len(alive))
        ]
        with ThreadPoolExecutor(max_workers=len(alive)) as pool:
            outcomes = list(pool.map(_answer, alive, shares))
        for outcome in outcomes:
            answered |= outcome.generations
        failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
        alive = [client for client, outcome in zip(alive, outcomes, strict=True) if outcome.failure is None]
        if failures and not alive:
            raise failures[-1]
        for failure in failures:
            log.warning(
                "what an engine left unanswered is redone on the %d still alive: %s", len(alive), failure
            )
    return [generation for first in calls for generation in answered[first]]


@dataclass
class _Outcome:
    """What an engine made of its share: the answered calls by number, and what stopped it if anything."""

    generations: dict[int, list[Generation]] = field(default_factory=dict)
    failure: EngineUnreachable | EngineTimeout | None = None


def _take_out(client: EngineClient) -> None:
    """Unstamp an engine that hangs: it gets no traffic until a version is published to it again."""
    with contextlib.suppress(EngineError):
        client.stamp(UNSTAMPED)


def _answer(client: EngineClient, share: dict[int, Call]) -> _Outcome:
    """Make the calls one after another, up to the first that the engine does not answer."""
    outcome = _Outcome()
    for first, call in share.items():
        try:
            outcome.generations[first] = client.generate(
                [request.prompt for request in call], [request.params for request in call]
            )
        except (EngineUnreachable, EngineTimeout) as failure:
            outcome.failure = failure
            if isinstance(failure, EngineTimeout):
                _take_out(client)
            break
    return outcome
