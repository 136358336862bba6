"""Everything a run stands on, brought up together and taken down together."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import ray

from infra.cluster.local import LocalCluster
from tasks.cluster.engines import EngineFleet
from tasks.models import prepare_model
from tasks.run import Run
from tasks.tracking import TRACKER, TrackingActor
from tasks.training.group import TrainerGroup, TrainerLost
from tasks.training.recovery import ready_trainer


def provision(run: Run, trainer: bool = True) -> None:
    """Start the Ray cluster and on it the engines, the trainer at its newest commit, and the tracker.

    `trainer` false brings up engines only, for evaluation.
    """
    LocalCluster(run.home).start()
    model_path = prepare_model(run.config.model, run.home)
    ray.remote(TrackingActor).options(
        name=TRACKER, namespace=run.namespace, get_if_exists=True, lifetime="detached", num_cpus=0
    ).remote(run)
    with ThreadPoolExecutor(max_workers=2) as pool:
        engines_up = pool.submit(EngineFleet(run).start, model_path)
        if trainer:
            pool.submit(ready_trainer, run).result()
        engines_up.result()


def release(run: Run) -> None:
    """Stop engines, trainer and cluster; fine when some or all of them are gone."""
    try:
        if ray.is_initialized():
            EngineFleet(run).stop()
            with contextlib.suppress(TrainerLost, TimeoutError):
                TrainerGroup.connect(run).stop()
    finally:
        LocalCluster(run.home).stop()
