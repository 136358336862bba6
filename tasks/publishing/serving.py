"""Keeping the run's engines on the version that the next rollouts want."""

import contextlib
from functools import partial

from ray.exceptions import RayError

from configs.errors import OvernightError
from infra.engines.client import EngineTimeout
from tasks.fleet.engines import Engine, Fleet
from tasks.probe.records import record_alignment
from tasks.publishing.publish import PublishRefused, publish
from tasks.publishing.transports.base import Transfer
from tasks.publishing.transports.disk import Loading
from tasks.publishing.transports.staged import StagedVersion, read_staged
from tasks.record.commits import PublishReport
from tasks.record.run import Run
from tasks.record.weight_version import WeightVersion


def publish_version(run: Run, weights: WeightVersion) -> PublishReport:
    """Bring the trainer's version to every engine; when one refuses, the engines go back to the parent."""
    staged, key = read_staged(run, weights.number), run.weights_key(weights.number)
    fleet = Fleet(run)
    transfer = _transfer(fleet, weights, held=True)
    engines = fleet.start(key)
    try:
        return _publish(run, engines, staged, transfer)
    except EngineTimeout:
        fleet.start(key, restart_hung=True)  # the next try finds the engine that hung started anew
        raise
    except PublishRefused:
        if weights.parent is not None:
            with contextlib.suppress(OvernightError, OSError, RayError):  # the refusal is the news
                parent = read_staged(run, weights.parent)
                _publish(run, engines, parent, _transfer(fleet, parent.weights, held=False))
        raise


def ensure_served(fleet: Fleet, version: int) -> None:
    """Have all engines of a fleet hold a version, verified.

    An engine that is down is started again, and one that holds anything else gets the version from its
    exported folder, with hashes and probe checked, before prompts for the version can reach it.
    """
    run, serving = fleet.run, {engine.name for engine in fleet.serving(version)}
    if len(serving) < fleet.engine.count:
        staged = read_staged(run, version)
        engines = fleet.start(run.weights_key(version), restart_hung=True)
        behind = [engine for engine in engines if engine.name not in serving]
        if fleet.role == "rollout":
            _publish(run, behind, staged, _transfer(fleet, staged.weights, held=False))
        else:  # the alignment on record stays that of the engines that the version was published to
            publish(behind, staged, Loading(fleet), run.config.publish)


def _publish(run: Run, engines: list[Engine], staged: StagedVersion, transfer: Transfer) -> PublishReport:
    return publish(engines, staged, transfer, run.config.publish, judge=partial(record_alignment, run))


def _transfer(fleet: Fleet, weights: WeightVersion, held: bool) -> Transfer:
    transfer: Transfer = fleet.run.config.publish.transport.build().prepare(fleet, weights, held)
    return transfer
