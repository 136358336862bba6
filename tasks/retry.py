"""How the tasks of a step retry: with backoff and jitter, and only what can heal."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff
from ray.exceptions import GetTimeoutError, NodeDiedError, RayActorError, RayTaskError, WorkerCrashedError

from configs.errors import OvernightError, own_error

P = ParamSpec("P")
R = TypeVar("R")
_RAY_HEALS = (GetTimeoutError, NodeDiedError, RayActorError, WorkerCrashedError)
"""Ray's faults that the next try may find repaired; the project's own say for themselves."""


async def can_heal(_task: Any, _run: Any, state: Any) -> bool:
    """Whether a failed task run is worth another try."""
    error = await state.aresult(raise_on_failure=False)
    return error.heals if isinstance(error, OvernightError) else isinstance(error, _RAY_HEALS)


def retryable(*, name: str, task_run_name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a task of a function that the run store makes idempotent, so that Prefect need cache nothing.

    An error of the project's own that an actor raised leaves the task as itself, without Ray's account of it.
    """
    as_task = task(
        name=name,
        task_run_name=task_run_name,
        retries=3,
        retry_delay_seconds=exponential_backoff(backoff_factor=1),
        retry_jitter_factor=0.5,
        retry_condition_fn=can_heal,
        cache_policy=NO_CACHE,
    )

    def made(function: Callable[P, R]) -> Task[P, R]:
        @wraps(function)
        def unwrapping(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except RayTaskError as error:
                raise own_error(error) or error from None

        return as_task(unwrapping)

    return made
