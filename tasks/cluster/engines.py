"""The run's engines: named Ray actors, each with a server process of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import ray

from infra.engines.actor import EngineActor
from infra.engines.client import EngineClient, EngineError
from infra.home import Home
from tasks.run import Run


@dataclass(frozen=True)
class Engine:
    """An engine of a run, by name."""

    name: str
    client: EngineClient


class EngineFleet:
    """Driver-side view of a run's engines. Stateless: actors are found by name, started when missing."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def start(self, model_path: Path) -> list[Engine]:
        """Every engine up and healthy; those that already are stay as they are.

        An engine that has to be started loads `model_path` and takes no traffic until a version was
        published to it, since it carries no weight version yet.
        """
        actors = [self._actor(index, model_path) for index in range(self._run.config.engine.count)]
        urls = ray.get(
            [actor.start.remote() for actor in actors], timeout=self._run.config.engine.start_timeout_s + 60
        )
        return [Engine(name, self._client(url)) for name, url in zip(self._names(), urls, strict=True)]

    def serving(self, version: int) -> list[Engine]:
        """The healthy engines that were stamped with `version`."""
        return [engine for engine in self._reachable() if _version_of(engine) == str(version)]

    def stop(self) -> None:
        """Stop the servers and their actors; fine when there are none."""
        for name in self._names():
            if actor := self._find(name):
                ray.get(actor.stop.remote(), timeout=60)
                ray.kill(actor)

    def _reachable(self) -> Iterator[Engine]:
        for name in self._names():
            actor = self._find(name)
            if actor is None:
                continue
            try:
                url = ray.get(actor.url.remote(), timeout=30)
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
                continue
            if url:
                yield Engine(name, self._client(url))

    def _names(self) -> list[str]:
        return [f"engine-{index}" for index in range(self._run.config.engine.count)]

    def _client(self, url: str) -> EngineClient:
        return _client(url, self._run.config.rollout.timeout_s)

    def _find(self, name: str) -> Any | None:
        try:
            return ray.get_actor(name, namespace=self._run.namespace)
        except ValueError:
            return None

    def _actor(self, index: int, model_path: Path) -> Any:
        name = self._names()[index]
        options = ray.remote(EngineActor).options(
            name=name,
            namespace=self._run.namespace,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
        )
        log = Home(self._run.home).logs / self._run.id / f"{name}.log"
        return options.remote(self._run.config.engine, index, model_path, log)


@lru_cache(maxsize=256)
def _client(url: str, timeout_s: float) -> EngineClient:
    """One client an engine and process, so that its connections are reused."""
    return EngineClient(url, timeout_s=timeout_s)


def _version_of(engine: Engine) -> str | None:
    try:
        return engine.client.model_info().weight_version
    except EngineError:
        return None
