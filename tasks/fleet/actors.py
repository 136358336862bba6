"""The run's named Ray actors that supervise a server process."""

import contextlib
from typing import Any

import ray
from ray.exceptions import RayError

from tasks.record.run import Run


def find_actor(run: Run, name: str) -> Any | None:
    """The run's actor of that name, if it is there."""
    try:
        return ray.get_actor(name, namespace=run.namespace)
    except ValueError:
        return None


def named_actor(run: Run, name: str, kind: type, *arguments: object, devices: int = 0) -> Any:
    """The run's actor of that name, made of `kind(*arguments)` when it is not there."""
    return (
        ray.remote(kind)
        .options(
            name=name,
            namespace=run.namespace,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            num_gpus=devices,
            max_restarts=-1,
        )
        .remote(*arguments)
    )


def actor_names(run: Run) -> list[str]:
    """Names of all the run's actors."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if actor["namespace"] == run.namespace]


def stop_actor(run: Run, name: str) -> None:
    """Stop an actor and its server; fine when it is not there."""
    if actor := find_actor(run, name):
        with contextlib.suppress(RayError):  # killing the actor takes its server with it
            ray.get(actor.stop.remote(), timeout=60)
        ray.kill(actor)
