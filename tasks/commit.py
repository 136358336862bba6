"""Prefect's door to finishing a step."""

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
    run: Run,
    graded: Graded | None,
    update: Update,
    published: PublishReport,
    ahead: Rollouts | None,
    began: float,
) -> StepCommit:
    """Write the step's commit. Step 0 has no batch; `ahead` was generated beside it for the next.

    `began` is when training did in this session, Unix time in seconds.
    """
    commit = write_commit(run, graded, update, published, ahead, began)
    if board := board_of(run):
        board.add_step(commit)
    return commit
