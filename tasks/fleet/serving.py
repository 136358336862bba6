"""Who serves a weight version."""

from collections.abc import Iterator
from contextlib import contextmanager

from infra.engines.router import Servers
from tasks.fleet.engines import Fleet
from tasks.record.run import Run


def is_served(fleet: Fleet, version: int) -> bool:
    """Whether every engine of the fleet answers and has the version verified on it."""
    return len(fleet.serving(version)) == fleet.engine.count


def servers_of(fleet: Fleet, version: int) -> Servers:
    """What prompts for a version go to: the engines that serve it, or the router with just them behind it."""
    return fleet.servers(fleet.serving(version))


@contextmanager
def evaluation_fleet(run: Run, version: int) -> Iterator[Fleet]:
    """What a version is evaluated on: engines of its own, which end with the block, or the rollout fleet."""
    if run.config.evaluation.engines is None:
        yield Fleet(run)
        return
    fleet = Fleet(run, "evaluation", version)
    try:
        yield fleet
    finally:
        fleet.stop()
