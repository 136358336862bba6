"""The training loop: the table of contents of the system."""

import time

from prefect import flow

from flows.evaluation import evaluate_checkpoint
from flows.ownership import claim
from tasks.commit_step import commit_step
from tasks.commits import StepCommit
from tasks.reward.task import grade_rollouts
from tasks.rollout.task import generate_rollouts
from tasks.run import Run
from tasks.training.task import stage_initial_weights, train_step
from tasks.weights.task import publish_weights


@flow(name="train-policy", flow_run_name="{run.id}: train", validate_parameters=False, on_running=[claim])
def train_policy(run: Run) -> StepCommit:
    """Repeat generate, grade, train, publish, commit until the run has its steps."""
    commit = run.commits.newest() or begin(run)
    ahead, since = None, time.time()
    for step in run.remaining_steps():
        rollouts = ahead.result() if ahead else generate_rollouts(run, step, commit.version)
        graded = grade_rollouts(run, rollouts)
        ahead = generate_rollouts.submit(run, step + 1, commit.version) if run.generates_ahead(step) else None
        update = train_step(run, graded, commit.version)
        published = publish_weights(run, update, wait_for=[ahead] if ahead else None)
        commit = commit_step(run, graded, update, published, since)
        since = commit.created_at
        if run.evaluates_after(step):
            evaluate_checkpoint(run, commit.version)
    return commit


def begin(run: Run) -> StepCommit:
    """Commit step 0: version 0 is the model the run starts from, published and checked like any other."""
    since = time.time()
    initial = stage_initial_weights(run)
    published = publish_weights(run, initial)
    commit = commit_step(run, None, initial, published, since)
    if run.config.evaluation.at_start:
        evaluate_checkpoint(run, commit.version)
    return commit
