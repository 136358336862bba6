"""Fleets of engines of a run: named Ray actors, each with a server process of its own."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from configs.engine import EngineConfig
from infra.engines.actor import EngineActor
from infra.engines.client import EngineClient, EngineError, EngineTimeout
from infra.engines.router import Servers
from infra.store import StoredFolder
from tasks.fleet.actors import actor_names, find_actor, named_actor, stop_actor
from tasks.fleet.router import FleetRouter
from tasks.record.run import Run

T = TypeVar("T")
Role = Literal["rollout", "evaluation"]
_CALL_TIMEOUT_S = 30
_OF_A_FLEET = re.compile(r"(evaluation-v\d+-)?(router|engine-\d+(-node-\d+)?)")


@dataclass(frozen=True)
class Engine:
    """An engine of a fleet, by name."""

    name: str
    client: EngineClient


def on_all(engines: list[Engine], action: Callable[[Engine], T]) -> list[T]:
    """Run an action on every engine at once; the first failure is raised after all have ended."""
    with ThreadPoolExecutor(max_workers=len(engines)) as pool:
        calls = [pool.submit(action, engine) for engine in engines]
    return [call.result() for call in calls]


@dataclass(frozen=True)
class Fleet:
    """Driver-side view of the engines of a role. Stateless: actors are found by name, started when missing.

    The rollout fleet moves from version to version; an evaluation fleet is bound to one, so that several can
    be up at once, each with names, logs, ports and a router of its own.
    """

    run: Run
    role: Role = "rollout"
    version: int | None = None
    """What an evaluation fleet is bound to."""

    @property
    def engine(self) -> EngineConfig:
        """How many engines there are, and how each is laid out; engine.port is the rollout fleet's."""
        engine, count = self.run.config.engine, self.run.config.evaluation.engines
        return engine if self.role == "rollout" else engine.model_copy(update={"count": count, "port": None})

    def start(self, weights_key: str, restart_hung: bool = False) -> list[Engine]:
        """Every engine up and healthy; those that already are stay as they are.

        An engine that has to be started loads the folder `weights_key` of the run's store, which its machine
        fetches within engine.start_timeout_s, and takes no traffic until a version was published to it, since
        it carries no weight version yet. Calls have the deadline of a publish. `restart_hung` also starts
        those anew that hang with open ports. No engine is behind the router from here on until `servers` puts
        it there: one started anew may have the address of the one before.
        """
        if self._router:
            self._router.serve([])
        engines = [self._actors(index) for index in range(self.engine.count)]
        weights = StoredFolder(self.run.config.store, self.run.home, weights_key)
        with ThreadPoolExecutor(max_workers=len(engines)) as pool:
            urls = list(pool.map(lambda actors: self._started(actors, weights, restart_hung), engines))
        deadline_s = self.run.config.publish.timeout_s
        return [Engine(name, _client(url, deadline_s)) for name, url in zip(self._names(), urls, strict=True)]

    def serving(self, version: int) -> list[Engine]:
        """The engines that answer, were stamped with `version` and have not failed the router's probe."""
        hanging = self._router.hanging() if self._router else set()
        return [
            engine
            for engine in self._reachable()
            if engine.client.url not in hanging and _version_of(engine) == str(version)
        ]

    def servers(self, engines: Sequence[Engine]) -> Servers:
        """What prompts for these engines go to: they themselves, or the router with just them behind it."""
        if self._router:
            return self._router.serve([engine.client.url for engine in engines])
        return [engine.client for engine in engines]

    def on_machines(self, action: Callable[..., T], *arguments: object) -> list[T]:
        """Run an action once on every machine that has an engine, and raise what it raises there.

        EngineTimeout at the deadline of a publish.
        """
        timeout_s = self.run.config.publish.timeout_s
        deadline = time.monotonic() + timeout_s
        actors = [actor for name in self._all_members() if (actor := find_actor(self.run, name))]
        nodes = ray.get([actor.__ray_call__.remote(_node_of) for actor in actors], timeout=_CALL_TIMEOUT_S)
        calls = [
            ray.remote(action)
            .options(
                num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, False)
            )
            .remote(*arguments)
            for node in dict.fromkeys(nodes)
        ]
        try:
            return ray.get(calls, timeout=max(deadline - time.monotonic(), 0))
        except RayTaskError as error:
            raise error.cause from None
        except GetTimeoutError:
            for call in calls:
                ray.cancel(call)
            raise EngineTimeout(
                f"an engine's machine was not ready within publish.timeout_s {timeout_s:g} s: raise it"
            ) from None

    def stop(self) -> None:
        """Stop the servers and their actors; fine when there are none."""
        if self._router:
            self._router.stop()
        for name in self._all_members():
            stop_actor(self.run, name)

    @property
    def _router(self) -> FleetRouter | None:
        return FleetRouter(self.run, f"{self._prefix}router", self.engine) if self.engine.router else None

    @property
    def _prefix(self) -> str:
        """What the names of the fleet's actors and logs begin with."""
        return "" if self.role == "rollout" else f"{self.role}-v{self.version}-"

    def _reachable(self) -> Iterator[Engine]:
        for name in self._names():
            actor = find_actor(self.run, name)
            if actor is None:
                continue
            try:
                url = ray.get(actor.url.remote(), timeout=_CALL_TIMEOUT_S)
            except RayError:
                continue
            if url:
                yield Engine(name, _client(url, self.run.config.rollout.timeout_s))

    def _started(self, actors: list[Any], weights: StoredFolder, restart_hung: bool) -> str:
        """The engine's URL. The servers of an engine on several machines start and end together."""
        timeout_s = self.engine.start_timeout_s + 60
        meeting = ""
        if len(actors) > 1:
            if not all(ray.get([actor.alive.remote(restart_hung) for actor in actors], timeout=timeout_s)):
                ray.get([actor.stop.remote() for actor in actors], timeout=timeout_s)
            meeting = ray.get(actors[0].meeting.remote(), timeout=timeout_s)
        starting = [actor.start.remote(weights, restart_hung, meeting) for actor in actors]
        return ray.get(starting, timeout=timeout_s)[0]

    def _names(self) -> list[str]:
        return [f"{self._prefix}engine-{index}" for index in range(self.engine.count)]

    def _members(self, index: int) -> list[str]:
        """Names of an engine's actors, one a machine; the first has the engine's."""
        name = self._names()[index]
        return [name, *(f"{name}-node-{rank}" for rank in range(1, self.engine.machines))]

    def _all_members(self) -> list[str]:
        return [name for index in range(self.engine.count) for name in self._members(index)]

    def _actors(self, index: int) -> list[Any]:
        config, logs = self.engine, self.run.home.logs / self.run.id
        cluster = self.run.config.cluster.build(self.run.home)
        return [
            named_actor(
                self.run,
                name,
                EngineActor,
                *(config, index, logs / f"{name}.log", cluster, rank),
                devices=config.devices,
            )
            for rank, name in enumerate(self._members(index))
        ]


def stop_fleets(run: Run) -> None:
    """Stop every engine and router that the run has, of whatever role and however many."""
    for name in actor_names(run):
        if _OF_A_FLEET.fullmatch(name):
            stop_actor(run, name)


@lru_cache(maxsize=256)
def _client(url: str, timeout_s: float) -> EngineClient:
    """One client an engine and process, so that its connections are reused."""
    return EngineClient(url, timeout_s=timeout_s)


def _node_of(_actor: object) -> str:
    return ray.get_runtime_context().get_node_id()


def _version_of(engine: Engine) -> str | None:
    try:
        return engine.client.model_info().weight_version
    except EngineError:
        return None
