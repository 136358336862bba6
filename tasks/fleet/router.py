"""A fleet's router: a named Ray actor with a server process before the engines."""

from collections.abc import Collection
from functools import lru_cache

import ray
from ray.exceptions import RayError

from configs.engine import EngineConfig
from infra.engines.client import EngineError
from infra.engines.router import RouterActor, RouterClient
from tasks.fleet.actors import find_actor, named_actor, stop_actor
from tasks.record.run import Run


class FleetRouter:
    """Driver-side view of a fleet's router. Stateless: the actor is found by name, started when missing."""

    def __init__(self, run: Run, name: str, engine: EngineConfig) -> None:
        """`name` is the actor's; `engine` is what the fleet's engines are."""
        self._run = run
        self._name = name
        self._engine = engine

    def serve(self, urls: Collection[str]) -> RouterClient:
        """The router, up and with exactly these engines behind it; an EngineError when it cannot be so.

        Prompts are given twice rollout.timeout_s: an engine that hangs may hold one that long, and the router
        then redoes it on another.
        """
        start_timeout_s, prompt_timeout_s = self._engine.start_timeout_s, self._run.config.rollout.timeout_s
        log = self._run.home.logs / self._run.id / f"{self._name}.log"
        cluster = self._run.config.cluster.build(self._run.home)
        given = (start_timeout_s, prompt_timeout_s, log, cluster)
        actor = named_actor(self._run, self._name, RouterActor, *given)
        client = self._client(ray.get(actor.start.remote(), timeout=start_timeout_s + 60))
        try:
            client.serve(urls)
        except EngineError:
            stop_actor(self._run, self._name)  # it must not send prompts to engines that it should not
            raise
        return client

    def hanging(self) -> set[str]:
        """URLs of engines behind the router that fail its health probe; none when it is down."""
        actor = find_actor(self._run, self._name)
        try:
            url = ray.get(actor.url.remote(), timeout=30) if actor else ""
            return self._client(url).hanging() if url else set()
        except (EngineError, RayError):
            return set()

    def stop(self) -> None:
        """Stop the router and its actor; fine when there is none."""
        stop_actor(self._run, self._name)

    def _client(self, url: str) -> RouterClient:
        prompts = self._engine.count * self._engine.batch_size
        return _client(url, 2 * self._run.config.rollout.timeout_s, prompts)


@lru_cache(maxsize=64)
def _client(url: str, timeout_s: float, concurrency: int) -> RouterClient:
    """One client a router and process, so that its connections are reused."""
    return RouterClient(url, timeout_s, concurrency)
