"""Everything a run stands on, brought up together and taken down together."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import ray

from tasks.cluster.beginning import beginning_model
from tasks.fleet.engines import Fleet, stop_fleets
from tasks.record.run import Run
from tasks.record.versions import exported_versions
from tasks.reporting.tracking import TRACKER, TrackingActor
from tasks.training.group import TrainerGroup, TrainerLost
from tasks.training.recovery import ready_trainer


def provision(run: Run, trainer: bool = True) -> None:
    """Start the Ray cluster and on it the engines, the trainer at its newest commit, and the tracker.

    `trainer` false brings up engines only, for evaluation, if that does not start its own. Engines that are
    to hold quantised weights start with the first publish, before which there are none.
    """
    needed = trainer or run.config.evaluation.engines is None
    run.config.cluster.build(run.home).start()
    model_key = beginning_model(run)
    weights = _starting_weights(run, model_key) if needed else None
    ray.remote(TrackingActor).options(
        name=TRACKER, namespace=run.namespace, get_if_exists=True, lifetime="detached", num_cpus=0
    ).remote(run)
    with ThreadPoolExecutor(max_workers=2) as pool:
        engines_up = pool.submit(Fleet(run).start, weights) if weights else None
        if trainer:
            pool.submit(ready_trainer, run).result()
        if engines_up:
            engines_up.result()


def _starting_weights(run: Run, model: str) -> str | None:
    """Key of a folder in the format that the engines are to hold; None while there is none."""
    if run.config.publish.format is None:
        return model
    return run.weights_key(0) if 0 in exported_versions(run) else None


def release(run: Run) -> None:
    """Stop engines, trainer and cluster; fine when some or all of them are gone."""
    try:
        if ray.is_initialized():
            run.config.publish.transport.build().forget(run)
            stop_fleets(run)
            with contextlib.suppress(TrainerLost, TimeoutError):
                TrainerGroup.connect(run).stop()
    finally:
        run.config.cluster.build(run.home).stop()
