"""The alignment check by itself: do trainer and engines compute the same model?"""

from prefect import flow

from flows.ownership import claim
from tasks.alignment.report import AlignmentReport
from tasks.alignment.task import align_version
from tasks.cluster.task import provision_cluster, release_cluster
from tasks.run import Run
from tasks.training.task import stage_initial_weights


@flow(
    name="check-alignment",
    flow_run_name="{run.id}: check alignment",
    validate_parameters=False,
    on_running=[claim],
)
def check_alignment(run: Run, layers: bool = False) -> AlignmentReport:
    """Bring everything up, compare trainer and engines by the newest version, release."""
    try:
        provision_cluster(run)
        newest = run.commits.newest() or stage_initial_weights(run)
        return align_version(run, newest.version, layers)
    finally:
        release_cluster(run)
