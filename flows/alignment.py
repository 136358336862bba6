"""The alignment check by itself: do trainer and engines compute the same model?"""

from prefect import flow

from flows.ownership import claim
from tasks.align import align_version
from tasks.probe.report import AlignmentReport
from tasks.provision import provision_cluster
from tasks.record.run import Run
from tasks.release import release_cluster
from tasks.stage_initial import stage_initial_weights


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
        return align_version(run, newest.weights.number, layers)
    finally:
        release_cluster(run)
