"""How the tasks of a step retry: with backoff and jitter, and only what can heal."""

from functools import partial
from typing import Any

from prefect import task
from prefect.tasks import exponential_backoff
from ray.exceptions import GetTimeoutError, RayActorError

from infra.engines.client import EngineTimeout, EngineUnreachable
from tasks.training.group import TrainerLost
from tasks.weights.publish import PublishRefused

HEALS = (EngineUnreachable, EngineTimeout, TrainerLost, PublishRefused, RayActorError, GetTimeoutError)
"""Faults that the next try may find repaired; anything else fails at once."""


async def can_heal(_task: Any, _run: Any, state: Any) -> bool:
    """Whether a failed task run is worth another try."""
    error = await state.aresult(raise_on_failure=False)
    return isinstance(error, HEALS)


stage = partial(
    task,
    retries=3,
    retry_delay_seconds=exponential_backoff(backoff_factor=1),
    retry_jitter_factor=0.5,
    retry_condition_fn=can_heal,
    cache_policy=None,
    persist_result=False,
)
"""Decorator of a stage of a step; its run store makes it idempotent, so Prefect caches nothing."""
