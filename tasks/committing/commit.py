"""Finishing a step: its commit, and what follows from it."""

import contextlib
import time

import ray

from tasks.grading.graded import Graded
from tasks.record.commits import PublishReport, StepCommit
from tasks.record.run import Run
from tasks.record.versions import prune_weights
from tasks.reporting.tracking import TRACKER
from tasks.rollout.rollouts import Rollouts
from tasks.training.update import Update, prune_checkpoints


def write_commit(
    run: Run, graded: Graded | None, update: Update, published: PublishReport, times: dict[str, float]
) -> StepCommit:
    """Commit the step, tell MLflow's projector, and remove what is no longer needed."""
    commit = StepCommit(
        step=update.step,
        version=update.version,
        parent_version=update.parent,
        weights_hash=update.weights_hash,
        recipe=f"{run.config.number_format}/{published.transport}",
        batch=graded.ref if graded else None,
        prompt_cursor=update.step * run.config.rollout.prompts_per_step,
        rng_seed=run.config.seed,
        checkpoint=update.checkpoint,
        publish=published,
        metrics={
            **(graded.metrics if graded else {}),
            **update.metrics,
            **_speed(graded),
            **_publish_metrics(published),
            **times,
        },
        created_at=time.time(),
    )
    commit = run.commits.append(commit)
    _notify_tracker(run)
    prune_checkpoints(run)
    prune_weights(run, commit.version)
    run.config.publish.transport.build().prune(run, commit.version)
    return commit


def _speed(graded: Graded | None) -> dict[str, float]:
    if graded is None or not graded.rollouts.seconds:
        return {}
    return {"rollout/tokens_per_second": graded.metrics["rollout/tokens"] / graded.rollouts.seconds}


def _publish_metrics(published: PublishReport) -> dict[str, float]:
    return {
        "publish/seconds": published.transfer_seconds,
        "publish/bytes": float(published.bytes),
        "publish/sent_bytes": float(published.sent_bytes),
        "publish/gb_per_second": published.gb_per_second,
        "publish/probe_abs_diff_max": published.probe_abs_diff_max,
    }


def step_times(
    graded: Graded | None,
    update: Update,
    published: PublishReport,
    upcoming: Rollouts | None,
    step_seconds: float,
) -> dict[str, float]:
    """time/* of a step, seconds.

    overhead is what neither generating nor training explains: the step less the larger of training and what
    was generated beside it, less the generation that training waited for.
    """
    generate = graded.rollouts.seconds if graded else 0.0
    was_ahead = graded is not None and graded.rollouts.version != update.parent
    beside = upcoming.seconds if upcoming else 0.0
    busy = (0.0 if was_ahead else generate) + max(update.train_seconds, beside)
    return {
        "time/step": step_seconds,
        "time/generate": generate,
        "time/grade": graded.seconds if graded else 0.0,
        "time/train": update.train_seconds,
        "time/stage": update.stage_seconds,
        "time/publish": published.seconds,
        "time/overhead": max(0.0, step_seconds - busy),
    }


def _notify_tracker(run: Run) -> None:
    """Let MLflow catch up in its own process; a step never waits for it."""
    with contextlib.suppress(ValueError):  # without a tracker, the end of the run catches up
        ray.get_actor(TRACKER, namespace=run.namespace).project.remote()
