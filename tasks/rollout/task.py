"""Prefect's door to rollout generation."""

from tasks.retry import retryable
from tasks.rollout.rollouts import Rollouts, rollouts_of
from tasks.run import Run


@retryable(name="generate-rollouts", task_run_name="{run.id} step {step}: generate with version {version}")
def generate_rollouts(run: Run, step: int, version: int) -> Rollouts:
    """The step's rollout batch, by engines that hold `version`."""
    return rollouts_of(run, step, version)
