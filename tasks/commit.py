"""Prefect's door to finishing a step."""

import time
from math import nan

from prefect import get_run_logger
from prefect.context import FlowRunContext

from tasks.committing.commit import write_commit
from tasks.grading.graded import Graded
from tasks.record.commits import PublishReport, StepCommit
from tasks.record.run import Run
from tasks.retry import retryable
from tasks.rollout.rollouts import Rollouts
from tasks.training.update import Update


@retryable(
    name="commit-step",
    task_run_name="{run.id} step {update.weights.step}: commit version {update.weights.number}",
)
def commit_step(
    run: Run, graded: Graded | None, update: Update, published: PublishReport, ahead: Rollouts | None
) -> StepCommit:
    """Write the step's commit. Step 0 has no batch; `ahead` was generated beside it for the next."""
    flow = FlowRunContext.get()
    began = flow.start_time.timestamp() if flow else time.time()
    commit = write_commit(run, graded, update, published, ahead, began)
    get_run_logger().info(
        "step %d: version %d, reward %.3f, divergence %.2g",
        commit.step,
        commit.version,
        commit.metrics.get("reward/mean", nan),
        commit.metrics.get("divergence/logprob_abs_diff_max", nan),
    )
    return commit
