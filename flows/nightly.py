"""What a schedule starts: the whole run, from an empty machine to a report."""

from prefect import flow

from configs.run import RunConfig
from flows.deployments import FLOW
from flows.evaluation import evaluate_weights
from flows.hooks import alert, close
from flows.labels import label
from flows.ownership import claim
from flows.skipping import skipped
from flows.training import train_policy
from infra.home import Home
from tasks.board import put_up
from tasks.cluster.preflight import preflight
from tasks.provision import provision_cluster
from tasks.record.evaluations import is_complete
from tasks.record.lineage import open_run
from tasks.record.run import Run
from tasks.record.runs import RunBusy, exclusive
from tasks.record_in_mlflow import record_in_mlflow
from tasks.release import release_cluster
from tasks.reporting.report import RunReport
from tasks.write_report import write_report


@flow(name=FLOW, on_running=[claim], on_failure=[alert], on_crashed=[alert], on_cancellation=[close])
def nightly_rl(config: RunConfig, run_id: str | None = None) -> RunReport:
    """Provision, train until the run has its steps, evaluate, release, report.

    Without `run_id` an unfinished night of the same configuration is continued, else a new one begun. A night
    whose run somebody is working on by hand is skipped.
    """
    home = Home.find()
    preflight(config, home)
    run = open_run(config, home, run_id)
    label(run)
    try:
        with exclusive(run):
            return work_on(run)
    except RunBusy as busy:
        return skipped(busy)


def work_on(run: Run) -> RunReport:
    """Bring the run to its end, whatever there is of it already."""
    put_up(run)
    try:
        provision_cluster(run)
        commit = train_policy(run)
        evaluate_weights(run, commit.version)
    finally:
        release_cluster(run)
        record_in_mlflow(run, failed=not is_complete(run))
    return write_report(run)
