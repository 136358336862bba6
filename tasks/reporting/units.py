"""The units of metrics on MLflow's pages."""

from collections.abc import Mapping

_UNITS = {
    "divergence/kl_k3": ("piconats", 1e-12),  # of the order of the square of the others
    "divergence/kl_k1": ("micronats", 1e-6),
    "divergence/logprob_": ("micronats", 1e-6),
    "publish/probe_abs_diff": ("micronats", 1e-6),
    "version/divergence": ("micronats", 1e-6),
}


def in_small_units(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics, divergences (which the record has in nats) in smaller units and with those in the name.

    MLflow's charts write six decimals: of an agreement to 1e-7 nats they would show nothing but zeros.
    """
    return dict(_shown(name, value) for name, value in metrics.items())


def _shown(name: str, value: float) -> tuple[str, float]:
    for start, (unit, nats) in _UNITS.items():
        if name.startswith(start):
            return f"{name}_{unit}", value / nats
    return name, value
