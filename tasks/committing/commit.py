"""Finishing a step: its commit, and what follows from it."""

import contextlib

import ray

from tasks.committing.times import step_times
from tasks.grading.graded import Graded
from tasks.record.commits import PublishReport, StepCommit
from tasks.record.evaluations import HELD_OUT, find_report
from tasks.record.interval import Interval
from tasks.record.pruning import prune_weights
from tasks.record.run import Run
from tasks.reporting.tracking import TRACKER
from tasks.rollout.rollouts import Rollouts
from tasks.training.update import Update, prune_checkpoints


def write_commit(
    run: Run,
    graded: Graded | None,
    update: Update,
    published: PublishReport,
    ahead: Rollouts | None,
    began: float,
) -> StepCommit:
    """Commit the step, tell MLflow's projector, and remove what is no longer needed.

    `ahead` was generated beside the step for the next one. `began` is when this sitting at the run did, Unix
    time in seconds: what lies before it is not the step's.
    """
    stages = _stages(graded, update, published)
    window = Interval.since(max(began, _ready_for(run, update.weights.step)))
    commit = StepCommit(
        weights=update.weights,
        batch=graded.ref if graded else None,
        cursor=graded.rollouts.cursor if graded else 0,
        seed=run.config.seed,
        checkpoint=update.checkpoint,
        publish=published,
        credits=update.credits,
        stages=stages,
        metrics={
            **(graded.metrics if graded else {}),
            **update.metrics,
            **_speed(graded),
            **_publish_metrics(update, published),
            **step_times(stages, ahead.interval if ahead else None, window),
        },
        created_at=window.end,
    )
    commit = run.commits.append(commit)
    _notify_tracker(run)
    prune_checkpoints(run)
    prune_weights(run, commit.version)
    run.config.publish.transport.build().prune(run, commit.version)
    return commit


def _stages(graded: Graded | None, update: Update, published: PublishReport) -> dict[str, Interval]:
    stages = {**update.stages, "publish": published.interval}
    if graded is not None:
        stages["grade"] = graded.interval
        if graded.rollouts.interval is not None:
            stages["generate"] = graded.rollouts.interval
    return stages


def _ready_for(run: Run, step: int) -> float:
    """When the run could go on with a step: the one before was committed, and evaluated if it is to be."""
    if step == 0:
        return 0.0
    before = run.commits.read(step - 1)
    evaluated = run.evaluates_after(before.step) and find_report(run, before.version, HELD_OUT)
    return max(before.created_at, evaluated.finished_at) if evaluated else before.created_at


def _speed(graded: Graded | None) -> dict[str, float]:
    interval = graded.rollouts.interval if graded else None
    if graded is None or interval is None or not interval.seconds:  # 0 when the clock was set back
        return {}
    return {"rollout/tokens_per_second": graded.metrics["rollout/tokens"] / interval.seconds}


def _publish_metrics(update: Update, published: PublishReport) -> dict[str, float]:
    return {
        "publish/seconds": published.transfer_seconds,
        "publish/bytes": float(update.weights.bytes),
        "publish/sent_bytes": float(published.sent_bytes),
        "publish/gb_per_second": published.gb_per_second,
        "publish/probe_abs_diff_max": published.probe_abs_diff_max,
    }


def _notify_tracker(run: Run) -> None:
    """Let MLflow catch up in its own process; a step never waits for it."""
    with contextlib.suppress(ValueError):  # without a tracker, the end of the run catches up
        ray.get_actor(TRACKER, namespace=run.namespace).project.remote()
