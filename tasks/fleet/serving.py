"""Who serves a weight version."""

from infra.engines.router import Servers
from tasks.fleet.engines import EngineFleet
from tasks.record.run import Run


def is_served(run: Run, version: int) -> bool:
    """Whether every engine of the run answers and has the version verified on it."""
    return len(EngineFleet(run).serving(version)) == run.config.engine.count


def servers_of(run: Run, version: int) -> Servers:
    """What prompts for a version go to: the engines that serve it, or the router with just them behind it."""
    fleet = EngineFleet(run)
    return fleet.servers(fleet.serving(version))
