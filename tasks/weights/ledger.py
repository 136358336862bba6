"""The record of weight versions: which there are, what became of each, and how it did."""

import time
from typing import Literal

from pydantic import BaseModel, ConfigDict

from infra.store.base import KeyExistsError
from tasks.commits import StepCommit
from tasks.evaluation.records import read_reports
from tasks.run import Run
from tasks.stored import read_record
from tasks.weights.manifest import Manifest

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


class StagedManifest(BaseModel):
    """A version number taken by weights: what `<run>/versions/<version>/manifest.json` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    version: int
    parent: int | None
    step: int
    hash: str
    bytes: int
    manifest: Manifest
    created_at: float


def stage_version(run: Run, manifest: Manifest, parent: int | None, step: int) -> int:
    """The version number of weights: a new one, or the one that the same weights of the step have already.

    Numbers count up from 0 and are never given twice: weights that differ from what an earlier try of the
    step staged get the next number, also when several processes stage at once.
    """
    while True:
        numbers = _staged_numbers(run)
        for number in reversed(numbers):
            staged = read_manifest(run, number)
            if staged.step < step:
                break
            if (staged.step, staged.parent, staged.hash) == (step, parent, manifest.hash):
                return number
        version = numbers[-1] + 1 if numbers else 0
        staged = StagedManifest(
            version=version,
            parent=parent,
            step=step,
            hash=manifest.hash,
            bytes=manifest.bytes,
            manifest=manifest,
            created_at=time.time(),
        )
        try:
            run.store.create(_manifest_key(run, version), staged.model_dump_json(indent=1).encode())
        except KeyExistsError:
            continue  # another process took the number; look again
        return version


def read_manifest(run: Run, version: int) -> StagedManifest:
    """What was staged under a version number; KeyMissingError when nothing was."""
    return read_record(run.store, _manifest_key(run, version), StagedManifest)


def read_ledger(run: Run) -> list[VersionRecord]:
    """Every version of the run, ascending, from what is staged, committed and evaluated.

    ValueError when the weights committed under a number are not those that were staged under it.
    """
    commits = run.commits.all()
    staged = [read_manifest(run, number) for number in _staged_numbers(run)]
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


def _staged_numbers(run: Run) -> list[int]:
    keys = run.store.list(f"{run.id}/versions")
    return sorted(int(key.split("/")[-2]) for key in keys if key.endswith("/manifest.json"))


def _manifest_key(run: Run, version: int) -> str:
    return f"{run.id}/versions/{version:06d}/manifest.json"
