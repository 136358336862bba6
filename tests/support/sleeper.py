"""A flow that only sleeps, for the worker to start in place of a night: it is there at once."""

import time
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from prefect import State, flow
from prefect.client.orchestration import get_client
from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Cron
from prefect.states import Scheduled
from prefect.types.entrypoint import EntrypointType

from infra.services import WORK_POOL
from tests.support.command import ROOT


@flow(on_running=[])
def sleeper(seconds: float, night: dict[str, str]) -> None:
    """Sleep; `night` is read by the worker alone."""
    for _ in range(round(seconds * 10)):
        time.sleep(0.1)


@flow(timeout_seconds=3)
def overslept(night: dict[str, str]) -> None:
    """Sleep for longer than the flow may."""
    for _ in range(600):
        time.sleep(0.1)


def deploy(flow: Any, name: str, cron: str | None = None, **parameters: Any) -> str:
    """Deploy one of the flows above on the server that this process is connected to; its id."""
    deployment = RunnerDeployment.from_flow(
        flow,
        name=name,
        schedule=Cron(cron) if cron else None,
        parameters=parameters,
        work_pool_name=WORK_POOL,
        job_variables={"env": {"PYTHONPATH": str(ROOT)}},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    return str(deployment.apply())


def schedule(deployment: str, *minutes_ago: float) -> list[str]:
    """Have runs of a deployment due so many minutes ago; their ids."""
    with get_client(sync_client=True) as client:
        now = datetime.now().astimezone()
        due: list[State] = [
            Scheduled(scheduled_time=now - timedelta(minutes=minutes)) for minutes in minutes_ago
        ]
        return [
            str(client.create_flow_run_from_deployment(UUID(deployment), state=state).id) for state in due
        ]
