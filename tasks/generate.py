"""Prefect's door to rollout generation."""

from tasks.fleet.engines import Fleet
from tasks.fleet.serving import is_served
from tasks.record.run import Run
from tasks.retry import retryable
from tasks.rollout.rollouts import Rollouts, rollouts_of
from tasks.serve import serve_version


@retryable(name="generate-rollouts", task_run_name="{run.id} step {step}: generate with version {version}")
def generate_rollouts(run: Run, step: int, version: int, cursor: int) -> Rollouts:
    """The step's rollout batch of the problems from number `cursor` on, by engines that hold `version`."""
    fleet = Fleet(run)
    if not is_served(fleet, version):
        serve_version(run, version, fleet)
    return rollouts_of(fleet, step, version, cursor)
