"""Bringing a weight version to engines: transfer, compare hashes, probe, and only then stamp."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from configs.errors import RunFailure
from configs.weights import PublishConfig
from infra.engines.client import UNSTAMPED, EngineFailed, EngineRefused
from tasks.cluster.engines import Engine
from tasks.commits import PublishReport
from tasks.weights.layout import differences
from tasks.weights.staging import Probe, StagedVersion
from tasks.weights.transport import Transfer

T = TypeVar("T")


class PublishRefused(RunFailure):
    """An engine does not hold the weights that the trainer does; the version was not announced."""


def publish(
    engines: list[Engine], staged: StagedVersion, transfer: Transfer, config: PublishConfig
) -> PublishReport:
    """Bring a staged version to all the engines, or raise PublishRefused and stamp none of them."""
    try:
        return _publish(engines, staged, transfer, config.probe_tolerance)
    except (EngineRefused, EngineFailed) as error:
        raise PublishRefused(f"version {staged.version} refused: {error}") from error


def _publish(
    engines: list[Engine], staged: StagedVersion, transfer: Transfer, tolerance: float
) -> PublishReport:
    on_all(engines, lambda engine: engine.client.stamp(UNSTAMPED))
    started = time.monotonic()
    on_all(engines, lambda engine: engine.client.pause())
    try:
        transfer(engines, staged)
        transferred = time.monotonic()
        hashes = dict(on_all(engines, lambda engine: (engine.name, _verified_hash(engine, staged))))
    finally:
        on_all(engines, lambda engine: engine.client.resume())
    differences = on_all(engines, lambda engine: _verified_probe(engine, staged, tolerance))
    on_all(engines, lambda engine: engine.client.stamp(staged.version))
    return PublishReport(
        transport=transfer.name,
        transfer_seconds=transferred - started,
        seconds=time.monotonic() - started,
        bytes=staged.manifest.bytes,
        gb_per_second=staged.manifest.bytes * len(engines) / (transferred - started) / 1e9,
        engine_hashes=hashes,
        probe_abs_diff_max=max(differences),
    )


def probe_difference(engine: Engine, probe: Probe) -> float:
    """Largest |trainer - engine| log-probability over the probe's tokens, nats."""
    scored = engine.client.score(probe.sequences)
    return float(np.max(np.abs(np.concatenate(scored) - np.concatenate(probe.logprobs))))


def on_all(engines: list[Engine], action: Callable[[Engine], T]) -> list[T]:
    """Run an action on every engine at once; the first failure is raised after all have ended."""
    with ThreadPoolExecutor(max_workers=len(engines)) as pool:
        calls = [pool.submit(action, engine) for engine in engines]
    return [call.result() for call in calls]


def _verified_hash(engine: Engine, staged: StagedVersion) -> str:
    """The manifest's hash, when every rank of the engine holds what the manifest names."""
    for held in engine.client.checksums():
        if wrong := differences(staged.folder, staged.manifest, held):
            raise PublishRefused(
                f"version {staged.version} refused: {engine.name} holds {len(wrong)} of "
                f"{len(held.checksums)} tensors that differ from the manifest (first: {wrong[0]})"
            )
    return staged.manifest.hash


def _verified_probe(engine: Engine, staged: StagedVersion, tolerance: float) -> float:
    difference = probe_difference(engine, staged.probe)
    if not difference <= tolerance:  # also refuses nan
        raise PublishRefused(
            f"version {staged.version} refused: log-probabilities of {engine.name} differ from the trainer's "
            f"by {difference:.3g}, more than publish.probe_tolerance {tolerance:g}"
        )
    return difference
