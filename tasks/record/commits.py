"""The record of finished steps. Resume, the ledger and MLflow all follow from it."""

from collections.abc import Iterable
from functools import reduce

from pydantic import BaseModel, ConfigDict

from infra.store.base import KeyExistsError, Store
from tasks.record.credit import VersionCredit
from tasks.record.earlier import commit_from_schema_1
from tasks.record.interval import Interval
from tasks.record.keys import numbered_key, numbers_in, run_key
from tasks.record.samples import BatchRef
from tasks.record.stored import Document, Record, create_record, read_record
from tasks.record.weight_version import WeightVersion


class PublishReport(BaseModel):
    """How a weight version reached the engines."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    transport: str
    transfer_seconds: float
    """Time until every engine had loaded the tensors."""
    interval: Interval
    """Of the whole publish, with hashes, probe and stamp."""
    sent_bytes: int
    """What travelled to all engines, or to their machines, in the try that succeeded."""
    gb_per_second: float
    """Weights that the transfer brought to all engines together, 1e9 bytes a second."""
    engine_hashes: dict[str, str]
    """Content hash that each engine reported, by engine name."""
    probe_abs_diff_max: float
    """Largest |trainer - engine| log-probability over the probe tokens of all engines, nats."""


class StepCommit(Record):
    """A finished step. Step 0 is the initial weights: version 0, without a batch."""

    schema_number = 2
    weights: WeightVersion
    """The version that the step made."""
    batch: BatchRef | None
    cursor: int
    """Number of the run's next problem, after those that the batch was read up to."""
    seed: int
    """Seed of prompts and sampling; with step, prompt and sample number it gives every random stream."""
    checkpoint: str | None
    """Store key of the trainer checkpoint after this step, when one was written."""
    publish: PublishReport
    credits: tuple[VersionCredit, ...]
    """What the batch says of the versions that generated it."""
    stages: dict[str, Interval]
    """When each stage of the step was at work."""
    metrics: dict[str, float]
    """Metric name (`reward/mean`) to value, as MLflow receives them."""
    created_at: float
    """Unix time, seconds."""

    @classmethod
    def upgraded(cls, document: Document) -> Document:
        """See Record."""
        return commit_from_schema_1(document)

    @property
    def step(self) -> int:
        """The step that is finished."""
        return self.weights.step

    @property
    def version(self) -> int:
        """Number of the version that it made."""
        return self.weights.number


class CommitLog:
    """The commits of one run, create-only: a step is committed once."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id

    def append(self, commit: StepCommit) -> StepCommit:
        """Write a step's commit; KeyExistsError when the step has one of another version or other weights.

        A step that was done again to the same version and weights is the same commit: the first one stays.
        """
        key = self._key(commit.step)
        try:
            create_record(self._store, key, commit)
        except KeyExistsError:
            finished = self.read(commit.step)
            if (finished.version, finished.weights.hash) != (commit.version, commit.weights.hash):
                raise
            return finished
        return commit

    def read(self, step: int) -> StepCommit:
        """The commit of a step; KeyMissingError when it is not finished."""
        return read_record(self._store, self._key(step), StepCommit)

    def steps(self) -> list[int]:
        """Numbers of the finished steps, ascending."""
        keys = self._store.list(run_key(self._run_id, "steps"))
        return numbers_in(key for key in keys if key.endswith("/commit.json"))

    def all(self) -> list[StepCommit]:
        """Every commit, oldest first."""
        return [self.read(step) for step in self.steps()]

    def newest(self) -> StepCommit | None:
        """The last finished step; None for a run that has not begun."""
        steps = self.steps()
        return self.read(steps[-1]) if steps else None

    def _key(self, step: int) -> str:
        return numbered_key(self._run_id, "steps", step, "commit.json")


def credits_of(commits: Iterable[StepCommit]) -> dict[int, VersionCredit]:
    """What each version is credited with by the batches of the commits; others are absent."""
    shares: dict[int, list[VersionCredit]] = {}
    for commit in commits:
        for credit in commit.credits:
            shares.setdefault(credit.version, []).append(credit)
    return {version: reduce(VersionCredit.__add__, mine) for version, mine in shares.items()}
