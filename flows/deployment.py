"""Scheduling a run: the deployment that a worker starts at its minute."""

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
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
from flows.nightly import nightly_rl
from infra.home import Home
from infra.services import WORK_POOL, Services


def deploy(config: RunConfig, cron: str, timezone: str, home: Home) -> str:
    """Schedule a configuration; the name of its deployment, which has the configuration's name.

    Starts the Prefect server and the worker unless they run. Deploying again replaces schedule and
    configuration. UserError when the schedule is not one.
    """
    _check_schedule(cron, timezone)
    services = Services(home)
    services.check()
    services.connect(services.ensure_prefect())
    _ensure_work_pool()
    services.ensure_worker()
    deployment = RunnerDeployment.from_flow(
        nightly_rl,
        name=config.name,
        schedule=Cron(cron, timezone=timezone),
        parameters={"config": config.model_dump(mode="json")},
        description=config.description or nightly_rl.description,
        concurrency_limit=1,  # a night that is not over holds up the next one
        work_pool_name=WORK_POOL,
        job_variables={"env": {"OVERNIGHT_HOME": str(home.root), "OMP_NUM_THREADS": "1"}},
        entrypoint_type=EntrypointType.MODULE_PATH,  # found wherever the worker runs
    )
    deployment.apply()
    return f"{nightly_rl.name}/{config.name}"


def _check_schedule(cron: str, timezone: str) -> None:
    try:
        CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        raise UserError(f'schedule "{cron}" in time zone "{timezone}": {describe(error)}') from None


def _ensure_work_pool() -> None:
    pool = WorkPoolCreate(
        name=WORK_POOL,
        type="process",
        description="Runs on this machine, one at a time.",
        base_job_template=ProcessWorker.get_default_base_job_template(),
        concurrency_limit=1,
    )
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(pool)
        except ObjectAlreadyExists:
            return
