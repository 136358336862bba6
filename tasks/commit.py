"""Prefect's door to finishing a step."""

import time

from prefect.context import FlowRunContext

from tasks.board import board_of
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
    flow, board = FlowRunContext.get(), board_of(run)
    began = flow.start_time.timestamp() if flow else time.time()
    if board is None:
        return write_commit(run, graded, update, published, ahead, began)
    commit = write_commit(run, graded, update, published, ahead, board.training_since(began))
    board.add_step(commit)
    return commit
