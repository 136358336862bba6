"""The training loop: the table of contents of the system."""

import time

from prefect import flow

from flows.evaluation import evaluate_checkpoint
from flows.ownership import claim
from tasks.commit import commit_step
from tasks.generate import generate_rollouts
from tasks.grade import grade_rollouts
from tasks.publish import publish_weights
from tasks.record.commits import StepCommit
from tasks.record.run import Run
from tasks.stage_initial import stage_initial_weights
from tasks.train import train_step


@flow(name="train-policy", flow_run_name="{run.id}: train", validate_parameters=False, on_running=[claim])
def train_policy(run: Run) -> StepCommit:
    """Repeat generate, grade, train, publish, commit until the run has its steps."""
    commit, upcoming, since = run.commits.newest() or begin(run), None, time.time()
    for step in run.remaining_steps():
        if run.evaluates_after(commit.step):
            evaluate_checkpoint(run, commit.version)
            since = time.time()
        rollouts = upcoming or generate_rollouts(run, step, commit.version)
        graded = grade_rollouts(run, rollouts)
        ahead = generate_rollouts.submit(run, step + 1, commit.version) if run.generates_ahead(step) else None
        update = train_step(run, graded, commit.version)
        upcoming = ahead.result() if ahead else None  # a publish never lands in the middle of a sample
        published = publish_weights(run, update)
        commit = commit_step(run, graded, update, published, upcoming, since)
        since = commit.created_at
    return commit


def begin(run: Run) -> StepCommit:
    """Commit step 0: version 0 is the model the run starts from, published and checked like any other."""
    since = time.time()
    initial = stage_initial_weights(run)
    published = publish_weights(run, initial)
    return commit_step(run, None, initial, published, None, since)
