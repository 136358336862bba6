"""Bringing a weight version to engines: transfer, compare hashes, probe, and only then stamp."""

import time
from collections.abc import Callable

from configs.errors import RunFailure
from configs.weights import PublishConfig
from infra.engines.client import UNSTAMPED, EngineFailed, EngineRefused
from tasks.fleet.engines import Engine, on_all
from tasks.probe.compare import Logprobs, compare
from tasks.probe.report import AlignmentReport, Misaligned
from tasks.publishing.cached_prefix import cache_prefixes, prefix_difference, score_after_prefixes
from tasks.publishing.layout import differences
from tasks.publishing.transports.base import Transfer
from tasks.publishing.transports.staged import StagedVersion
from tasks.record.commits import PublishReport
from tasks.record.interval import Interval

Judge = Callable[[AlignmentReport], None]
"""Takes the comparison of engines and trainer; raises Misaligned to refuse the version."""


class PublishRefused(RunFailure):
    """An engine does not hold the weights that the trainer does; the version was not announced."""

    heals = True


def publish(
    engines: list[Engine],
    staged: StagedVersion,
    transfer: Transfer,
    config: PublishConfig,
    judge: Judge = AlignmentReport.require_aligned,
) -> PublishReport:
    """Bring a staged version to all the engines, or raise PublishRefused and stamp none of them."""
    try:
        return _publish(engines, staged, transfer, config, judge)
    except (EngineRefused, EngineFailed, Misaligned) as error:
        raise PublishRefused(f"version {staged.version} refused: {error}") from error


def _publish(
    engines: list[Engine], staged: StagedVersion, transfer: Transfer, config: PublishConfig, judge: Judge
) -> PublishReport:
    on_all(engines, lambda engine: engine.client.stamp(UNSTAMPED))
    on_all(engines, lambda engine: cache_prefixes(engine, staged.probe))
    started, paused = time.time(), time.monotonic()
    on_all(engines, lambda engine: engine.client.pause())
    try:
        sent = transfer.transfer(engines, staged)
        transfer_seconds = time.monotonic() - paused
        hashes = dict(on_all(engines, lambda engine: (engine.name, _verified_hash(engine, staged))))
    finally:
        on_all(engines, lambda engine: engine.client.resume())
    after_prefixes = on_all(engines, lambda engine: score_after_prefixes(engine, staged.probe))
    scored = score_all(engines, staged.probe.sequences)
    alignment = compare(staged.version, staged.probe, scored, config.probe_tolerance)
    judge(alignment)
    for engine, after in zip(engines, after_prefixes, strict=True):
        difference = prefix_difference(scored[engine.name], after)
        if not difference <= config.prefix_tolerance:  # also refuses nan
            raise PublishRefused(
                f"version {staged.version} refused: {engine.name} goes on from keys and values of older "
                f"weights: after a prefix that it knew, its log-probabilities differ by {difference:.3g}, "
                f"more than publish.prefix_tolerance {config.prefix_tolerance:g}"
            )
    on_all(engines, lambda engine: engine.client.stamp(staged.version))
    return PublishReport(
        transport=transfer.name,
        transfer_seconds=transfer_seconds,
        interval=Interval.since(started),
        sent_bytes=sent,
        gb_per_second=staged.manifest.bytes * len(engines) / transfer_seconds / 1e9,
        engine_hashes=hashes,
        probe_abs_diff_max=alignment.max,
    )


def score_all(engines: list[Engine], sequences: list[list[int]]) -> dict[str, Logprobs]:
    """What every engine gives for the sequences, by the engine's name."""
    return dict(on_all(engines, lambda engine: (engine.name, engine.client.score(sequences))))


def _verified_hash(engine: Engine, staged: StagedVersion) -> str:
    """The manifest's hash, when every rank of the engine holds what the manifest names."""
    for held in engine.client.checksums():
        if wrong := differences(staged.local, staged.manifest, held):
            raise PublishRefused(
                f"version {staged.version} refused: {engine.name} holds {len(wrong)} of "
                f"{len(held.checksums)} tensors that differ from the manifest (first: {wrong[0]})"
            )
    return staged.manifest.hash
