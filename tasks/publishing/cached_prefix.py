"""Whether an engine goes on from keys and values of the weights that it held before.

A sequence that is scored from its first token on is computed anew, whatever an engine has cached: SGLang
takes no more than `logprob_start_len` tokens of a prompt from its prefix cache. So here only the second half
of each sequence of the probe is scored: with the old weights, which leaves the first half in the cache of an
engine that has one, and then with the new ones. (A cache keeps whole pages: a half that is shorter than one
is not in it.)
"""

from contextlib import suppress

from infra.engines.client import EngineFailed, EngineRefused
from tasks.fleet.engines import Engine
from tasks.probe.compare import Logprobs
from tasks.probe.probe import Probe


def cache_prefixes(engine: Engine, probe: Probe) -> None:
    """Have an engine that caches prefixes cache those of the probe, with the weights that it has now."""
    with suppress(EngineFailed, EngineRefused):  # weights that give no numbers are about to be replaced
        score_after_prefixes(engine, probe)


def score_after_prefixes(engine: Engine, probe: Probe) -> Logprobs:
    """Log-probabilities of the second halves, which an engine that caches prefixes computes from those."""
    return engine.client.score(probe.sequences, _middle(probe))


def prefix_difference(anew: Logprobs, after_prefixes: Logprobs) -> float:
    """Largest difference of an engine from itself, nats, over what both have: whole sequences computed anew,
    and their second halves after the prefixes that it had."""
    pairs = (
        zip(whole[len(whole) - len(half) :], half, strict=True)
        for whole, half in zip(anew, after_prefixes, strict=True)
    )
    return max((abs(one - other) for row in pairs for one, other in row), default=0.0)


def _middle(probe: Probe) -> int:
    """Tokens of each sequence that are its prefix; the engines' protocol has one number for all."""
    return min(map(len, probe.sequences)) // 2
