"""How the tasks of a step retry: with backoff and jitter, and only what can heal."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff
from ray.exceptions import GetTimeoutError, NodeDiedError, RayActorError, WorkerCrashedError

from infra.engines.client import EngineError
from infra.engines.server import EngineStartError
from infra.store.base import StoreUnreachable
from tasks.publishing.publish import PublishRefused
from tasks.training.group import TrainerLost

P = ParamSpec("P")
R = TypeVar("R")
HEALS = (
    EngineStartError,
    GetTimeoutError,
    NodeDiedError,
    PublishRefused,
    RayActorError,
    StoreUnreachable,
    TrainerLost,
    WorkerCrashedError,
)
"""Faults, besides an engine's retryable ones, that the next try may find repaired; others fail at once."""


async def can_heal(_task: Any, _run: Any, state: Any) -> bool:
    """Whether a failed task run is worth another try."""
    error = await state.aresult(raise_on_failure=False)
    return isinstance(error, HEALS) or (isinstance(error, EngineError) and error.retryable)


def retryable(*, name: str, task_run_name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a task of a function that the run store makes idempotent, so that Prefect need cache nothing."""
    return task(
        name=name,
        task_run_name=task_run_name,
        retries=3,
        retry_delay_seconds=exponential_backoff(backoff_factor=1),
        retry_jitter_factor=0.5,
        retry_condition_fn=can_heal,
        cache_policy=NO_CACHE,
    )
