"""The training loop: the table of contents of the system."""

import time
from collections.abc import Iterator

from prefect import flow
from prefect.futures import PrefectFuture

from flows.evaluation import evaluate_weights
from flows.ownership import claim
from tasks.commit import commit_step
from tasks.generate import generate_rollouts
from tasks.grade import grade_rollouts
from tasks.publish import publish_weights
from tasks.record.commits import StepCommit
from tasks.record.run import Run
from tasks.rollout.rollouts import Rollouts
from tasks.stage_initial import stage_initial_weights
from tasks.train import train_step

_STEPS_IN_A_FLOW_RUN = 10
"""Of a long run, more in one graph cannot be read."""


@flow(name="train-policy", flow_run_name="{run.id}: train", validate_parameters=False, on_running=[claim])
def train_policy(run: Run) -> StepCommit:
    """Train until the run has its steps, a flow run for every few of them."""
    began = time.time()
    commit = run.commits.newest() or begin(run, began)
    ahead = None
    for steps in ranges(run.remaining_steps()):
        commit, ahead = train_steps(run, steps, commit, ahead, began)
    return commit


@flow(
    name="train-steps",
    flow_run_name="{run.id}: from step {steps.start}",
    validate_parameters=False,
    on_running=[claim],
)
def train_steps(
    run: Run, steps: range, commit: StepCommit, ahead: Rollouts | None, began: float
) -> tuple[StepCommit, Rollouts | None]:
    """Repeat generate, grade, train, publish, commit; the last commit and what was generated ahead of it."""
    for step in steps:
        if run.evaluates_after(commit.step):
            evaluate_weights(run, commit.version)
        rollouts = ahead or generate_rollouts(run, step, commit.version, commit.cursor)
        graded = grade_rollouts(run, rollouts)
        generating = generate_ahead(run, step, commit.version, rollouts.cursor)
        update = train_step(run, graded, commit.version)
        ahead = generating.result() if generating else None  # a publish never lands in the middle of a sample
        published = publish_weights(run, update.weights)
        commit = commit_step(run, graded, update, published, ahead, began)
    return commit, ahead


def ranges(steps: range) -> Iterator[range]:
    """Steps in ranges that end at multiples of as many as there are in one, wherever a sitting begins."""
    while steps:
        length = _STEPS_IN_A_FLOW_RUN - (steps.start - 1) % _STEPS_IN_A_FLOW_RUN
        yield steps[:length]
        steps = steps[length:]


def begin(run: Run, began: float) -> StepCommit:
    """Commit step 0: version 0 is the model the run starts from, published and checked like any other."""
    initial = stage_initial_weights(run)
    published = publish_weights(run, initial.weights)
    return commit_step(run, None, initial, published, None, began)


def generate_ahead(run: Run, step: int, version: int, cursor: int) -> PrefectFuture[Rollouts] | None:
    """Start generating for the step after `step`; None in mode `sync` and after the last step."""
    if not run.generates_ahead(step):
        return None
    return generate_rollouts.submit(run, step + 1, version, cursor)
