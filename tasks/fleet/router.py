"""The run's router: a named Ray actor with a server process before the engines."""

from collections.abc import Collection
from functools import lru_cache

import ray
from ray.exceptions import RayError

from infra.engines.client import EngineError
from infra.engines.router import RouterActor, RouterClient
from tasks.fleet.actors import find_actor, named_actor, stop_actor
from tasks.record.run import Run

_NAME = "router"


class RunRouter:
    """Driver-side view of the run's router. Stateless: the actor is found by name, started when missing."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def serve(self, urls: Collection[str]) -> RouterClient:
        """The router, up and with exactly these engines behind it; an EngineError when it cannot be so.

        Prompts are given twice rollout.timeout_s: an engine that hangs may hold one that long, and the router
        then redoes it on another.
        """
        config = self._run.config
        log = self._run.home.logs / self._run.id / f"{_NAME}.log"
        actor = named_actor(
            self._run, _NAME, RouterActor, config.engine.start_timeout_s, config.rollout.timeout_s, log
        )
        client = self._client(ray.get(actor.start.remote(), timeout=config.engine.start_timeout_s + 60))
        try:
            client.serve(urls)
        except EngineError:
            stop_actor(self._run, _NAME)  # it must not send prompts to engines that it should not
            raise
        return client

    def hanging(self) -> set[str]:
        """URLs of engines behind the router that fail its health probe; none when it is down."""
        actor = find_actor(self._run, _NAME)
        try:
            url = ray.get(actor.url.remote(), timeout=30) if actor else ""
            return self._client(url).hanging() if url else set()
        except (EngineError, RayError):
            return set()

    def stop(self) -> None:
        """Stop the router and its actor; fine when there is none."""
        stop_actor(self._run, _NAME)

    def _client(self, url: str) -> RouterClient:
        config = self._run.config
        return _client(url, 2 * config.rollout.timeout_s, config.engine.count * config.engine.batch_size)


@lru_cache(maxsize=64)
def _client(url: str, timeout_s: float, concurrency: int) -> RouterClient:
    """One client a router and process, so that its connections are reused."""
    return RouterClient(url, timeout_s, concurrency)
