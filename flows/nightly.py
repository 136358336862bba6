"""What a schedule starts: the whole run, from an empty machine to a report."""

from prefect import flow

from configs.run import RunConfig
from flows.evaluation import evaluate_checkpoint
from flows.ownership import claim
from flows.training import train_policy
from infra.home import Home
from tasks.cluster.task import provision_cluster, release_cluster
from tasks.preflight import preflight
from tasks.report import RunReport
from tasks.report_task import record_in_mlflow, write_report
from tasks.runs import exclusive, open_run


@flow(name="nightly-rl", flow_run_name="{config.name}", on_running=[claim])
def nightly_rl(config: RunConfig, run_id: str | None = None) -> RunReport:
    """Provision, train until the run has its steps, evaluate, report, release.

    Without `run_id` an unfinished run of the same configuration is continued, else a new one begun.
    """
    home = Home.find()
    preflight(config, home)
    run = open_run(config, home, run_id)
    with exclusive(run):
        try:
            provision_cluster(run)
            commit = train_policy(run)
            evaluate_checkpoint(run, commit.version)
        finally:
            release_cluster(run)
            record_in_mlflow(run, failed=not run.is_finished)
        return write_report(run)
