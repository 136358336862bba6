"""Which version of a run is the best one, and which names point at its versions."""

import json

from infra.store.base import KeyMissingError
from tasks.record.evaluations import HELD_OUT, read_reports
from tasks.record.run import Run
from tasks.record.versions import exported_versions, read_version


def best_version(run: Run) -> int | None:
    """The version with the best avg@k on the run's own held-out problems, the newest of equals.

    Only committed versions whose weights are kept count, so that a name can point at it. Other data sets do
    not count: which versions are evaluated on them is a matter of chance. Without such an evaluation it is
    the newest committed version; None before the first commit.
    """
    kept = exported_versions(run)
    own = [report for report in read_reports(run) if report.dataset == HELD_OUT and report.version in kept]
    for report in sorted(own, key=lambda report: (report.avg_at_k, report.version), reverse=True):
        if _is_committed(run, report.version):
            return report.version
    newest = run.commits.newest()
    return newest.version if newest else None


def aliases_of(run: Run) -> dict[str, int]:
    """Aliases of MLflow's registry that were given to versions of the run; their weights are kept."""
    try:
        return json.loads(run.store.read(_key(run)))
    except KeyMissingError:
        return {}


def save_aliases(run: Run, aliases: dict[str, int]) -> None:
    """Keep which versions have an alias, in place of what was kept before."""
    run.store.replace(_key(run), json.dumps(aliases).encode())


def _is_committed(run: Run, version: int) -> bool:
    try:
        return run.commits.read(read_version(run, version).step).version == version
    except KeyMissingError:
        return False


def _key(run: Run) -> str:
    return run.record_key("aliases.json")
