"""The units of metrics on MLflow's pages."""

from collections.abc import Iterator, Mapping

_UNITS = {
    "divergence/kl_k3": ("piconats", 1e-12),  # of the order of the square of the others
    "divergence/kl_k1": ("micronats", 1e-6),
    "divergence/logprob_": ("micronats", 1e-6),
    "publish/probe_abs_diff": ("micronats", 1e-6),
    "version/divergence": ("micronats", 1e-6),
}


def with_small_units(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics, and divergences, which are in nats, in a smaller unit as well, with that in the name.

    MLflow's charts write six decimals: of an agreement to 1e-7 nats they would show nothing but zeros.
    """
    return {**metrics, **dict(_in_small_units(metrics))}


def _in_small_units(metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        for start, (unit, nats) in _UNITS.items():
            if name.startswith(start):
                yield f"{name}_{unit}", value / nats
