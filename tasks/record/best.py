"""Which version of a run is the best one, and which names point at its versions."""

import json
import logging

from infra.store.base import KeyMissingError
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import HELD_OUT, find_report, read_reports
from tasks.record.run import Run
from tasks.record.versions import exported_versions, read_version

log = logging.getLogger(__name__)


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


def is_better(run: Run, champion: Run, version: int) -> bool:
    """Whether the best version of a run is better than a version of another run, or one of its own.

    That goes by avg@k on held-out problems. A run that began from the champion has evaluated it as its own
    version 0, which counts, so that new evaluation settings are no matter. An abandoned champion, and one
    that was never evaluated, is beaten by all; a run that was never evaluated beats no other. What was
    evaluated otherwise (problems, samples, temperature, length or reward) is not compared: the champion
    stays, and a warning says so.
    """
    mine = best_version(run)
    if mine is None or run.id == champion.id or champion.is_abandoned:
        return mine is not None
    origin = run.origin
    if origin and (origin.run_id, origin.version) == (champion.id, version) and _held_out(run, 0):
        champion, version = run, 0
    ours, theirs = _held_out(run, mine), _held_out(champion, version)
    if ours is None or theirs is None:
        return theirs is None
    if _measure(run, ours) != _measure(champion, theirs):
        log.warning(
            "%s@%d stays the best version: %s was evaluated otherwise, so nothing says that it is better; "
            "evaluate both by the same settings",
            champion.id,
            version,
            run.id,
        )
        return False
    return ours.avg_at_k > theirs.avg_at_k


def inherited_versions(run: Run) -> list[int]:
    """Versions of the run that nights of its lineage began from; their weights are kept."""
    return run.numbers("heirs")


def aliases_of(run: Run) -> dict[str, int]:
    """Aliases of MLflow's registry that were given to versions of the run; their weights are kept."""
    try:
        return json.loads(run.store.read(_key(run)))
    except KeyMissingError:
        return {}


def save_aliases(run: Run, aliases: dict[str, int]) -> None:
    """Keep which versions have an alias, in place of what was kept before."""
    run.store.replace(_key(run), json.dumps(aliases).encode())


def _held_out(run: Run, version: int) -> EvaluationReport | None:
    return find_report(run, version, HELD_OUT)


def _measure(run: Run, report: EvaluationReport) -> object:
    """What accuracies must have in common to be compared."""
    settings, config = report.settings, run.config
    longest = settings.max_new_tokens or config.rollout.max_new_tokens
    problems = [(problem.id, problem.answer) for problem in report.problems]
    return problems, config.problems, config.reward, settings.samples, settings.temperature, longest


def _is_committed(run: Run, version: int) -> bool:
    try:
        return run.commits.read(read_version(run, version).step).version == version
    except KeyMissingError:
        return False


def _key(run: Run) -> str:
    return run.record_key("aliases.json")
