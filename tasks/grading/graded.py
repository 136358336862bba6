"""The graded batch of a step."""

import time
from dataclasses import dataclass

from tasks.grading.grade import grade_batch
from tasks.grading.metrics import reward_metrics
from tasks.model.source import prepared_tokenizer
from tasks.record.batches import read_batch, store_batch
from tasks.record.interval import Interval
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.rollout.metrics import rollout_metrics
from tasks.rollout.rollouts import Rollouts


@dataclass(frozen=True)
class Graded:
    """A stored batch with rewards."""

    ref: BatchRef
    rollouts: Rollouts
    """What was graded."""
    metrics: dict[str, float]
    interval: Interval
    """When it was graded."""

    @property
    def step(self) -> int:
        """The step that the batch belongs to."""
        return self.ref.step


def graded_of(run: Run, rollouts: Rollouts) -> Graded:
    """Grade a stored rollout batch and store the result."""
    started = time.time()
    tokenizer = prepared_tokenizer(run.config.model, run.home)
    graded = grade_batch(read_batch(run.store, rollouts.ref), run.config.reward.build(), tokenizer)
    ref = store_batch(run.store, run.step_key(rollouts.ref.step, "graded.parquet"), graded)
    metrics = reward_metrics(graded) | rollout_metrics(graded)
    return Graded(ref, rollouts, metrics, Interval.since(started))
