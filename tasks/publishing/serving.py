"""Keeping the run's engines on the version that the next rollouts want."""

import contextlib
from functools import partial

from ray.exceptions import RayError

from configs.errors import RunFailure, UserError
from infra.engines.client import EngineTimeout
from tasks.fleet.engines import Engine, EngineFleet
from tasks.probe.records import record_alignment
from tasks.publishing.delta import offer_delta
from tasks.publishing.publish import PublishRefused, publish
from tasks.publishing.staged import StagedVersion, read_staged
from tasks.publishing.transport import FromDisk, FromMirror, FromPublisher, FromTrainer, Transfer
from tasks.record.commits import PublishReport
from tasks.record.run import Run
from tasks.training.group import TrainerGroup, TrainerLost


def publish_version(run: Run, version: int, parent: int | None) -> PublishReport:
    """Bring the trainer's version to every engine; when one refuses, the engines go back to the parent."""
    staged = read_staged(run, version)
    if run.config.publish.transport == "delta":
        offer_delta(run, version)
    fleet, weights = EngineFleet(run), run.weights_key(version)
    engines = fleet.start(weights)
    try:
        return _publish(run, engines, staged, _transfer(run))
    except EngineTimeout:
        fleet.start(weights, probe=True)  # the next try finds the engine that hung started anew
        raise
    except PublishRefused:
        if parent is not None:
            with contextlib.suppress(RunFailure, UserError, OSError, RayError):  # the refusal is the news
                _publish(run, engines, read_staged(run, parent), _from_store(run))
        raise


def ensure_served(run: Run, version: int) -> None:
    """Have all the run's engines hold a version, verified.

    An engine that is down is started again, and one that holds anything else gets the version from its
    exported folder, with hashes and probe checked, before prompts for the version can reach it.
    """
    fleet = EngineFleet(run)
    serving = {engine.name for engine in fleet.serving(version)}
    if len(serving) < run.config.engine.count:
        staged = read_staged(run, version)
        engines = fleet.start(run.weights_key(version), probe=True)
        behind = [engine for engine in engines if engine.name not in serving]
        _publish(run, behind, staged, _from_store(run))


def _publish(run: Run, engines: list[Engine], staged: StagedVersion, transfer: Transfer) -> PublishReport:
    return publish(engines, staged, transfer, run.config.publish, judge=partial(record_alignment, run))


def _transfer(run: Run) -> Transfer:
    """The configured transport; from the store when the trainer that would broadcast is gone."""
    publish = run.config.publish
    if publish.transport == "tensor":
        return FromPublisher(publish.bucket_bytes)
    if publish.transport == "process_group":
        with contextlib.suppress(TrainerLost):
            return FromTrainer(TrainerGroup.connect(run), run.config.trainer.backend)
    return _from_store(run)


def _from_store(run: Run) -> Transfer:
    """From the exported folder, or the machines' copies of it."""
    return FromMirror(run) if run.config.publish.transport == "delta" else FromDisk(run)
