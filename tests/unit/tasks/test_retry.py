"""A task tries again when the next try may find things repaired, and only then."""

import asyncio

import pytest
from prefect.states import Failed
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError

from configs.errors import RunFailure, UserError
from infra.engines.client import EngineFailed, EngineRefused, EngineTimeout, EngineUnreachable
from infra.engines.server import EngineStartError
from infra.store.base import KeyExistsError, StoreError, StoreUnreachable
from tasks.model.errors import TrainerError
from tasks.publishing.publish import PublishRefused
from tasks.retry import can_heal, retryable
from tasks.training.errors import CheckpointUnusable, StepRefused, TrainerLost
from tasks.training.recovery import ReplayMismatch


def heals(error: BaseException) -> bool:
    return asyncio.run(can_heal(None, None, Failed(data=error)))


@pytest.mark.parametrize(
    "error",
    [
        EngineStartError("engine 0 ended with code 1"),
        EngineTimeout("no answer"),
        EngineUnreachable("nothing there"),
        GetTimeoutError("Ray"),
        ActorDiedError(),
        PublishRefused("version 3 refused"),
        StoreUnreachable("store.bucket does not answer"),
        TrainerLost("a rank died"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_heals(error: BaseException) -> None:
    assert heals(error)


@pytest.mark.parametrize(
    "error",
    [
        CheckpointUnusable("incomplete"),
        EngineFailed("500"),
        EngineRefused("400"),
        KeyExistsError("commit.json"),
        KeyError("a bug"),
        ReplayMismatch("other weights"),
        RunFailure("the run"),
        StepRefused("gates.max_logprob_diff"),
        StoreError("store.path is full"),
        TrainerError("no update group is open"),
        UserError("an answer is missing"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_does_not(error: BaseException) -> None:
    assert not heals(error)


def test_a_task_waits_longer_each_time_and_caches_nothing() -> None:
    @retryable(name="unit", task_run_name="unit {number}")
    def double(number: int) -> int:
        return 2 * number

    assert double.fn(4) == 8
    assert (double.name, double.task_run_name, double.retries) == ("unit", "unit {number}", 3)
    assert double.retry_delay_seconds == [1, 2, 4]
    assert double.retry_jitter_factor == 0.5
    assert double.retry_condition_fn is can_heal
    assert double.cache_key_fn is None and not double.persist_result


def test_an_actors_error_leaves_the_task_as_itself() -> None:
    @retryable(name="unit", task_run_name="unit")
    def ask(error: Exception) -> None:
        raise RayTaskError("method", "Traceback of the actor", error).as_instanceof_cause()

    with pytest.raises(TrainerError) as refusal:
        ask.fn(StepRefused("gates.max_logprob_diff"))
    assert type(refusal.value) is StepRefused and str(refusal.value) == "gates.max_logprob_diff"
    with pytest.raises(RayTaskError):
        ask.fn(LookupError("a bug"))
