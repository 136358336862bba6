"""Log-probabilities of the same tokens by trainer and engines, compared token by token."""

from collections.abc import Mapping

import numpy as np

from tasks.probe.probe import Probe
from tasks.probe.report import AlignmentReport, EngineAlignment, TokenDifference

Logprobs = list[list[float]]
"""For each sequence the log-probabilities of its tokens[1:], nats."""
_WORST = 5
"""Tokens of each engine that a report names."""


def compare(version: int, probe: Probe, engines: Mapping[str, Logprobs], tolerance: float) -> AlignmentReport:
    """The report of what engines, by name, and trainer gave for the probe's tokens."""
    return AlignmentReport(
        version=version,
        tolerance=tolerance,
        tokens=sum(map(len, probe.logprobs)),
        engines=tuple(_alignment(probe, name, scored) for name, scored in engines.items()),
    )


def differences(one: Logprobs, other: Logprobs) -> np.ndarray:
    """|one - other| of all tokens, flat."""
    return np.abs(np.concatenate(one) - np.concatenate(other))


def _alignment(probe: Probe, engine: str, scored: Logprobs) -> EngineAlignment:
    difference_N = differences(probe.logprobs, scored)
    places = [(number, place) for number, row in enumerate(probe.logprobs) for place in range(len(row))]
    farthest = np.argsort(-np.nan_to_num(difference_N, nan=np.inf), kind="stable")[:_WORST]
    return EngineAlignment(
        engine=engine,
        mean=float(difference_N.mean()),
        p99=float(np.percentile(difference_N, 99, method="inverted_cdf")),
        max=float(difference_N.max()),
        worst=tuple(
            TokenDifference(
                sequence=number,
                position=place + 1,
                token=probe.sequences[number][place + 1],
                trainer=probe.logprobs[number][place],
                engine=scored[number][place],
            )
            for number, place in (places[index] for index in farthest)
        ),
    )
