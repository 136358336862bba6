"""The record of weight versions: which there are, what became of each, and how it did."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from tasks.record.commits import StepCommit
from tasks.record.evaluations import read_reports
from tasks.record.run import Run
from tasks.record.versions import StagedManifest, read_manifest, staged_numbers

State = Literal["staged", "published", "retired"]


class VersionRecord(BaseModel):
    """One weight version. What only a finished step knows is None (or empty) on a version without commit."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    version: int
    parent: int | None
    """Version that training started from; None for the initial weights."""
    step: int
    hash: str
    """Content hash of the weights, as every engine reported it."""
    state: State
    """staged: not (yet) committed. published: the newest committed version. retired: an earlier one."""
    bytes: int
    """Size of the weights, bytes."""
    sent_bytes: int | None = None
    """What travelled to all engines, or to their machines, bytes."""
    recipe: str | None = None
    """Number format and transport, such as `float32/disk` or `fp8_block/disk`."""
    seconds: float | None = None
    """Time of the transfer to all engines, seconds."""
    gb_per_second: float | None = None
    """All engines together, 1e9 bytes a second."""
    engines: dict[str, str] = {}
    """Content hash that each engine reported, by engine name."""
    probe_abs_diff_max: float | None = None
    """Largest |trainer - engine| log-probability over the probe tokens, nats."""
    reward: float | None = None
    """Mean reward of the batch that made the version; of the first batch for the initial weights."""
    divergence: float | None = None
    """Mean |trainer - rollout| log-probability over the tokens of that batch, nats."""
    checkpoint: str | None = None
    """Store key of the trainer checkpoint after the step."""
    evaluation: dict[str, float] | None = None
    """Metric name (`eval/<dataset>/avg_at_k`) to value, when the version was evaluated."""
    created_at: float
    """Unix time of the commit, or of the staging, seconds."""


def read_ledger(run: Run) -> list[VersionRecord]:
    """Every version of the run, ascending, from what is staged, committed and evaluated.

    ValueError when the weights committed under a number are not those that were staged under it.
    """
    commits = run.commits.all()
    staged = [read_manifest(run, number) for number in staged_numbers(run)]
    records = {item.version: _staged_record(item) for item in staged}
    evaluation = _evaluation_metrics(run)
    for number, commit in enumerate(commits):
        known = records.get(commit.version)
        if known is not None and known.hash != commit.weights_hash:
            raise ValueError(
                f"run {run.id}: version {commit.version} was staged with hash {known.hash} "
                f"but step {commit.step} committed {commit.weights_hash}: the run store was changed by hand"
            )
        batch = commits[number + 1] if commit.batch is None and number + 1 < len(commits) else commit
        state: State = "published" if commit is commits[-1] else "retired"
        records[commit.version] = _committed_record(commit, state, batch, evaluation.get(commit.version))
    return [records[version] for version in sorted(records)]


def _staged_record(staged: StagedManifest) -> VersionRecord:
    return VersionRecord(
        version=staged.version,
        parent=staged.parent,
        step=staged.step,
        hash=staged.hash,
        state="staged",
        bytes=staged.bytes,
        created_at=staged.created_at,
    )


def _committed_record(
    commit: StepCommit, state: State, batch: StepCommit, evaluation: dict[str, float] | None
) -> VersionRecord:
    return VersionRecord(
        version=commit.version,
        parent=commit.parent_version,
        step=commit.step,
        hash=commit.weights_hash,
        state=state,
        bytes=commit.publish.bytes,
        recipe=commit.recipe,
        sent_bytes=commit.publish.sent_bytes,
        seconds=commit.publish.transfer_seconds,
        gb_per_second=commit.publish.gb_per_second,
        engines=commit.publish.engine_hashes,
        probe_abs_diff_max=commit.publish.probe_abs_diff_max,
        reward=batch.metrics.get("reward/mean"),
        divergence=batch.metrics.get("divergence/logprob_abs_diff_mean"),
        checkpoint=commit.checkpoint,
        evaluation=evaluation,
        created_at=commit.created_at,
    )


def _evaluation_metrics(run: Run) -> dict[int, dict[str, float]]:
    metrics: dict[int, dict[str, float]] = {}
    for report in read_reports(run):
        metrics.setdefault(report.version, {}).update(report.metrics())
    return metrics
