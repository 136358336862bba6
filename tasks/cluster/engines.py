"""The run's engines: named Ray actors, each with a server process of its own."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from infra.engines.actor import EngineActor
from infra.engines.client import EngineClient, EngineError
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

    def start(self, model_path: Path, probe: bool = False) -> list[Engine]:
        """Every engine up and healthy; those that already are stay as they are.

        An engine that has to be started loads `model_path` and takes no traffic until a version was
        published to it, since it carries no weight version yet. Calls have the deadline of a publish.
        `probe` also starts those anew that hang with open ports.
        """
        engines = [self._actors(index, model_path) for index in range(self._run.config.engine.count)]
        with ThreadPoolExecutor(max_workers=len(engines)) as pool:
            urls = list(pool.map(lambda actors: self._started(actors, probe), engines))
        deadline_s = self._run.config.publish.timeout_s
        return [Engine(name, _client(url, deadline_s)) for name, url in zip(self._names(), urls, strict=True)]

    def serving(self, version: int) -> list[Engine]:
        """The engines that answer and were stamped with `version`."""
        return [engine for engine in self._reachable() if _version_of(engine) == str(version)]

    def stop(self) -> None:
        """Stop the servers and their actors; fine when there are none."""
        for name in (name for index in range(self._run.config.engine.count) for name in self._members(index)):
            if actor := self._find(name):
                with contextlib.suppress(RayError):  # killing the actor takes its server with it
                    ray.get(actor.stop.remote(), timeout=60)
                ray.kill(actor)

    def _reachable(self) -> Iterator[Engine]:
        for name in self._names():
            actor = self._find(name)
            if actor is None:
                continue
            try:
                url = ray.get(actor.url.remote(), timeout=30)
            except RayError:
                continue
            if url:
                yield Engine(name, _client(url, self._run.config.rollout.timeout_s))

    def _started(self, actors: list[Any], probe: bool) -> str:
        """The engine's URL. The servers of an engine on several machines start and end together."""
        timeout_s = self._run.config.engine.start_timeout_s + 60
        meeting = ""
        if len(actors) > 1:
            if not all(ray.get([actor.alive.remote(probe) for actor in actors], timeout=timeout_s)):
                ray.get([actor.stop.remote() for actor in actors], timeout=timeout_s)
            meeting = ray.get(actors[0].meeting.remote(), timeout=timeout_s)
        return ray.get([actor.start.remote(probe, meeting) for actor in actors], timeout=timeout_s)[0]

    def _names(self) -> list[str]:
        return [f"engine-{index}" for index in range(self._run.config.engine.count)]

    def _members(self, index: int) -> list[str]:
        """Names of an engine's actors, one a machine; the first has the engine's."""
        name = self._names()[index]
        return [name, *(f"{name}-node-{rank}" for rank in range(1, self._run.config.engine.machines))]

    def _find(self, name: str) -> Any | None:
        try:
            return ray.get_actor(name, namespace=self._run.namespace)
        except ValueError:
            return None

    def _actors(self, index: int, model_path: Path) -> list[Any]:
        logs = self._run.home.logs / self._run.id
        return [
            ray.remote(EngineActor)
            .options(
                name=name,
                namespace=self._run.namespace,
                get_if_exists=True,
                lifetime="detached",
                num_cpus=0,
                num_gpus=self._run.config.engine.devices,
                max_restarts=-1,
            )
            .remote(self._run.config.engine, index, model_path, logs / f"{name}.log", rank)
            for rank, name in enumerate(self._members(index))
        ]


@lru_cache(maxsize=256)
def _client(url: str, timeout_s: float) -> EngineClient:
    """One client an engine and process, so that its connections are reused."""
    return EngineClient(url, timeout_s=timeout_s)


def _version_of(engine: Engine) -> str | None:
    try:
        return engine.client.model_info().weight_version
    except EngineError:
        return None
