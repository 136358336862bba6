"""The record of weight versions: which there are, what became of each, and how it did."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from tasks.record.commits import StepCommit, credits_of
from tasks.record.credit import VersionCredit
from tasks.record.evaluations import metrics_by_version
from tasks.record.night import Origin
from tasks.record.run import Run
from tasks.record.stored import RecordUnreadable
from tasks.record.versions import read_version, staged_numbers
from tasks.record.weight_version import WeightVersion

State = Literal["staged", "published", "retired"]


class VersionRecord(BaseModel):
    """One weight version. What only a finished step knows is None (or empty) on a version without commit."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    version: int
    parent: int | None
    """Version that training started from; None for the initial weights."""
    origin: Origin | None = None
    """Of version 0, the version of an earlier run that it is; None where the run began from its model."""
    step: int
    hash: str
    """Content hash of the weights, as every engine reported it."""
    bytes: int
    """Size of the weights."""
    format: str
    """Number format, such as `float32` or `fp8_block`."""
    state: State
    """staged: not (yet) committed. published: the newest committed version. retired: an earlier one."""
    transport: str | None = None
    """How it reached the engines, such as `disk`."""
    sent_bytes: int | None = None
    """What travelled to all engines, or to their machines."""
    seconds: float | None = None
    """Time of the transfer to all engines."""
    gb_per_second: float | None = None
    """All engines together, 1e9 bytes a second."""
    engines: dict[str, str] = {}
    """Content hash that each engine reported, by engine name."""
    probe_abs_diff_max: float | None = None
    """Largest |trainer - engine| log-probability over the probe tokens, nats."""
    reward: float | None = None
    """Mean reward of the responses that it generated; this and the next three are None until a batch with
    some is committed."""
    divergence: float | None = None
    """Mean |trainer - rollout| log-probability of their tokens, nats."""
    length: float | None = None
    """Mean length of the responses, tokens."""
    entropy: float | None = None
    """Mean entropy at their tokens, nats."""
    checkpoint: str | None = None
    """Store key of the trainer checkpoint after the step."""
    evaluation: dict[str, float] | None = None
    """Metric name (`eval/<dataset>/avg_at_k`) to value, when the version was evaluated."""
    created_at: float | None = None
    """Unix time of the commit, seconds."""


def read_ledger(run: Run) -> list[VersionRecord]:
    """Every version of the run, ascending, from what is staged, committed and evaluated.

    RecordUnreadable when the weights committed under a number are not those that were staged under it.
    """
    commits = run.commits.all()
    committed = {commit.version: commit for commit in commits}
    staged = set(staged_numbers(run))
    credited, evaluated = credits_of(commits), metrics_by_version(run)
    records = []
    for number in sorted(committed.keys() | staged):
        commit = committed.get(number)
        weights = read_version(run, number) if number in staged else committed[number].weights
        if commit is not None and weights.hash != commit.weights.hash:
            raise RecordUnreadable(
                f"run {run.id}: version {number} was staged with hash {weights.hash} but step {commit.step} "
                f"committed {commit.weights.hash}: the run store was changed by hand"
            )
        state: State = "staged" if commit is None else "published" if commit is commits[-1] else "retired"
        record = _record(weights, state, commit, credited.get(number), evaluated.get(number))
        records.append(record.model_copy(update={"origin": run.origin}) if number == 0 else record)
    return records


def _record(
    weights: WeightVersion,
    state: State,
    commit: StepCommit | None,
    credit: VersionCredit | None,
    evaluation: dict[str, float] | None,
) -> VersionRecord:
    named = {"version": weights.number, **weights.model_dump(exclude={"number"}), "state": state}
    if credit is not None:
        named |= credit.model_dump(include={"reward", "divergence", "length", "entropy"})
    if commit is not None:
        published = commit.publish
        named |= {
            "transport": published.transport,
            "sent_bytes": published.sent_bytes,
            "seconds": published.transfer_seconds,
            "gb_per_second": published.gb_per_second,
            "engines": published.engine_hashes,
            "probe_abs_diff_max": published.probe_abs_diff_max,
            "checkpoint": commit.checkpoint,
            "created_at": commit.created_at,
        }
    return VersionRecord(**named, evaluation=evaluation)
