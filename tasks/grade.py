"""Prefect's door to grading."""

from tasks.grading.graded import Graded, graded_of
from tasks.record.run import Run
from tasks.retry import retryable
from tasks.rollout.rollouts import Rollouts


@retryable(name="grade-rollouts", task_run_name="{run.id} step {rollouts.ref.step}: grade")
def grade_rollouts(run: Run, rollouts: Rollouts) -> Graded:
    """Reward every sample of the batch."""
    return graded_of(run, rollouts)
