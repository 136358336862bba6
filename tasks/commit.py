"""Prefect's door to finishing a step."""

import time

from prefect import get_run_logger

from tasks.committing.commit import step_times, write_commit
from tasks.grading.graded import Graded
from tasks.record.commits import PublishReport, StepCommit
from tasks.record.run import Run
from tasks.retry import retryable
from tasks.rollout.rollouts import Rollouts
from tasks.training.update import Update


@retryable(name="commit-step", task_run_name="{run.id} step {update.step}: commit version {update.version}")
def commit_step(
    run: Run,
    graded: Graded | None,
    update: Update,
    published: PublishReport,
    upcoming: Rollouts | None,
    since: float,
) -> StepCommit:
    """Write the step's commit. `upcoming` was generated meanwhile; `since` is when the last step ended."""
    times = step_times(graded, update, published, upcoming, time.time() - since)
    commit = write_commit(run, graded, update, published, times)
    get_run_logger().info(
        "step %d: version %d, reward %.3f, divergence %.2g",
        commit.step,
        commit.version,
        commit.metrics.get("reward/mean", float("nan")),
        commit.metrics.get("divergence/logprob_abs_diff_max", float("nan")),
    )
    return commit
