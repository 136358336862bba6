"""Scheduling a run: the deployment that a worker starts at its minute."""

from dataclasses import dataclass

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType
from prefect.workers.process import ProcessWorker
from pydantic import ValidationError

from configs.errors import UserError
from configs.loading import describe
from configs.run import RunConfig
from flows.deployments import find, is_paused
from flows.evaluation import evaluate_run
from flows.hooks import check_alert_block
from flows.nightly import nightly_rl
from infra.home import Home
from infra.services import WORK_POOL, Services


@dataclass(frozen=True)
class NewDeployment:
    """What was deployed."""

    name: str
    paused: bool
    """Whether its schedule is switched off, as it was before."""


def deploy(config: RunConfig, cron: str, timezone: str, home: Home) -> NewDeployment:
    """Schedule a configuration; its deployment has the configuration's name.

    Starts the servers and the worker unless they run. Deploying again replaces schedule and
    configuration; a paused one stays paused. UserError when the schedule is not one, or nobody can be told of
    failures as `night.alert_block` says.
    """
    _check_schedule(cron, timezone)
    services = Services(home)
    services.check()
    services.connect(services.ensure_prefect())
    check_alert_block(config.night.alert_block)
    _ensure_work_pool()
    services.ensure_worker()
    services.ensure_mlflow()
    with get_client(sync_client=True) as client:
        known = find(client, config.name)
    paused = known is not None and is_paused(known)
    deployment = RunnerDeployment.from_flow(
        nightly_rl,
        name=config.name,
        schedule=Cron(cron, timezone=timezone, active=not paused),
        paused=paused,
        parameters={"config": config.model_dump(mode="json")},
        description=config.description or nightly_rl.description,
        concurrency_limit=None,  # Prefect forgets whose turn it is in a restart; the worker asks (turns.py)
        work_pool_name=WORK_POOL,
        job_variables={"env": _environment(home)},
        entrypoint_type=EntrypointType.MODULE_PATH,  # found wherever the worker runs
    )
    deployment.apply()
    _deploy_evaluation(home)
    return NewDeployment(f"{nightly_rl.name}/{config.name}", paused)


def _deploy_evaluation(home: Home) -> None:
    """A form in the UI for evaluating a version of any run of the state folder."""
    RunnerDeployment.from_flow(
        evaluate_run,
        name="evaluate",
        work_pool_name=WORK_POOL,
        job_variables={"env": _environment(home)},
        entrypoint_type=EntrypointType.MODULE_PATH,
    ).apply()


def _environment(home: Home) -> dict[str, str]:
    return {
        "OVERNIGHT_HOME": str(home.root),
        "OMP_NUM_THREADS": "1",
        "PREFECT_CLIENT_MAX_RETRIES": "8",  # a night waits for a server that is restarted, up to 8 minutes
    }


def _check_schedule(cron: str, timezone: str) -> None:
    try:
        CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        raise UserError(f'schedule "{cron}" in time zone "{timezone}": {describe(error)}') from None


def _ensure_work_pool() -> None:
    """The worker's pool, without a limit of Prefect's, which would count nights that no process works on."""
    pool = WorkPoolCreate(
        name=WORK_POOL,
        type="process",
        description="Runs on this machine, one at a time.",
        base_job_template=ProcessWorker.get_default_base_job_template(),
    )
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(pool)
        except ObjectAlreadyExists:
            client.update_work_pool(WORK_POOL, WorkPoolUpdate(concurrency_limit=None))
