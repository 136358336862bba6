"""The deployments of this project on the Prefect server: listing, pausing, starting and removing them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound

from configs.errors import UserError
from infra.home import Home
from infra.services import WORK_POOL, Services

FLOW = "nightly-rl"
"""Name of the flow that is deployed, `flows.nightly`, which takes seconds to import."""


@dataclass(frozen=True)
class Deployed:
    """A deployment as `overnight deployments` shows it; times are ISO 8601 in UTC."""

    name: str
    cron: str | None
    timezone: str | None
    paused: bool
    next_night: str | None
    last_night: str | None
    """Name of the flow run that began last."""
    last_state: str | None


def deployments(home: Home) -> list[Deployed]:
    """Every deployment of nights on the work pool, by name."""
    with _client(home) as client:
        found = client.read_deployments(
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[WORK_POOL])),
            flow_filter=FlowFilter(name=FlowFilterName(any_=[FLOW])),
        )
        return sorted((_described(client, each) for each in found), key=lambda each: each.name)


def set_paused(name: str, paused: bool, home: Home) -> None:
    """Switch the schedule of a configuration off or on; UserError when it is not deployed."""
    with _client(home) as client:
        deployment = _find(client, name)
        for schedule in deployment.schedules:
            client.update_deployment_schedule(deployment.id, schedule.id, active=not paused)
        change = client.pause_deployment if paused else client.resume_deployment
        change(deployment.id)


def undeploy(name: str, home: Home) -> None:
    """Remove the deployment of a configuration, its nights to come with it; one that is going goes on."""
    with _client(home) as client:
        client.delete_deployment(_find(client, name).id)


def trigger(name: str, home: Home) -> FlowRun:
    """Make a night of a configuration that is due now; its flow run."""
    with _client(home) as client:
        deployment = _find(client, name)
        Services(home).ensure_worker()
        return client.create_flow_run_from_deployment(deployment.id)


def is_paused(deployment: DeploymentResponse) -> bool:
    """Whether no night of it will be scheduled."""
    return deployment.paused or not any(schedule.active for schedule in deployment.schedules)


def find(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    """The deployment of the configuration of that name."""
    try:
        return client.read_deployment_by_name(f"{FLOW}/{name}")
    except ObjectNotFound:
        return None


def _client(home: Home) -> SyncPrefectClient:
    services = Services(home)
    services.connect(services.ensure_prefect())
    return get_client(sync_client=True)


def _find(client: SyncPrefectClient, name: str) -> DeploymentResponse:
    found = find(client, name)
    if found is None:
        raise UserError(f"{name} is not deployed: `overnight deployments` lists what is")
    return found


def _described(client: SyncPrefectClient, deployment: DeploymentResponse) -> Deployed:
    schedule = deployment.schedules[0].schedule if deployment.schedules else None
    cron = schedule if isinstance(schedule, CronSchedule) else None
    following = _first(client, deployment, [StateType.SCHEDULED], FlowRunSort.EXPECTED_START_TIME_ASC)
    began = [state for state in StateType if state is not StateType.SCHEDULED]
    last = _first(client, deployment, began, FlowRunSort.EXPECTED_START_TIME_DESC)
    return Deployed(
        name=deployment.name,
        cron=cron.cron if cron else None,
        timezone=cron.timezone if cron else None,
        paused=is_paused(deployment),
        next_night=_iso(following.expected_start_time) if following else None,
        last_night=last.name if last else None,
        last_state=last.state_name if last else None,
    )


def _first(
    client: SyncPrefectClient, deployment: DeploymentResponse, types: Sequence[StateType], sort: FlowRunSort
) -> FlowRun | None:
    state = FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))
    found = client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id])),
        flow_run_filter=FlowRunFilter(state=state),
        sort=sort,
        limit=1,
    )
    return found[0] if found else None


def _iso(when: datetime | None) -> str | None:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}" if when else None
