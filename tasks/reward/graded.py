"""The graded batch of a step."""

import time
from dataclasses import dataclass

from infra.home import Home
from tasks.models import prepared_tokenizer
from tasks.reward.grade import grade_batch
from tasks.reward.metrics import reward_metrics
from tasks.rollout.metrics import rollout_metrics
from tasks.rollout.rollouts import Rollouts, read_batch, store_batch
from tasks.run import Run
from tasks.samples import BatchRef


@dataclass(frozen=True)
class Graded:
    """A stored batch with rewards, its metrics, and what generating and grading it took in seconds."""

    ref: BatchRef
    metrics: dict[str, float]
    generate_seconds: float
    grade_seconds: float

    @property
    def step(self) -> int:
        """The step that the batch belongs to."""
        return self.ref.step


def graded_of(run: Run, rollouts: Rollouts) -> Graded:
    """Grade a stored rollout batch and store the result."""
    started = time.monotonic()
    tokenizer = prepared_tokenizer(run.config.model, Home(run.home))
    graded = grade_batch(read_batch(run, rollouts.ref), tokenizer)
    ref = store_batch(run, run.step_key(rollouts.ref.step, "graded.parquet"), graded)
    metrics = reward_metrics(graded) | rollout_metrics(graded)
    return Graded(ref, metrics, rollouts.seconds, time.monotonic() - started)
