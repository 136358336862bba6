"""Keeping the run's engines on the version that the next rollouts want."""

import contextlib
from functools import partial

from infra.engines.client import EngineError, EngineTimeout
from infra.engines.router import Servers
from infra.store.base import KeyMissingError
from tasks.alignment.records import record_alignment
from tasks.cluster.engines import Engine, EngineFleet
from tasks.commits import PublishReport
from tasks.run import Run
from tasks.training.group import TrainerGroup, TrainerLost
from tasks.weights.publish import PublishRefused, publish
from tasks.weights.staging import StagedVersion, read_staged
from tasks.weights.transport import FromDisk, FromPublisher, FromTrainer, Transfer


def publish_version(run: Run, version: int, parent: int | None) -> PublishReport:
    """Bring the trainer's version to every engine; when one refuses, the engines go back to the parent."""
    staged = read_staged(run, version)
    fleet = EngineFleet(run)
    engines = fleet.start(staged.folder)
    try:
        return _publish(run, engines, staged, _transfer(run))
    except EngineTimeout:
        fleet.start(staged.folder, probe=True)  # the next try finds the engine that hung started anew
        raise
    except PublishRefused:
        if parent is not None:
            with contextlib.suppress(PublishRefused, EngineError, KeyMissingError):
                _publish(run, engines, read_staged(run, parent), FromDisk())
        raise


def serving_clients(run: Run, version: int) -> Servers:
    """What prompts for `version` go to: all the run's engines, each with the version verified on it.

    An engine that is down is started again, and one that holds anything else gets the version from its
    exported folder, with hashes and probe checked, before it is handed out or put behind the router.
    """
    fleet = EngineFleet(run)
    serving = {engine.name for engine in fleet.serving(version)}
    if len(serving) < run.config.engine.count:
        staged = read_staged(run, version)
        behind = [engine for engine in fleet.start(staged.folder, probe=True) if engine.name not in serving]
        _publish(run, behind, staged, FromDisk())
    return fleet.servers(fleet.serving(version))


def _publish(run: Run, engines: list[Engine], staged: StagedVersion, transfer: Transfer) -> PublishReport:
    return publish(engines, staged, transfer, run.config.publish, judge=partial(record_alignment, run))


def _transfer(run: Run) -> Transfer:
    """The configured transport; from disk when the trainer that would broadcast is gone."""
    publish = run.config.publish
    if publish.transport == "tensor":
        return FromPublisher(publish.bucket_mb * 2**20)
    if publish.transport == "process_group":
        with contextlib.suppress(TrainerLost):
            return FromTrainer(TrainerGroup.connect(run), run.config.trainer.backend)
    return FromDisk()
