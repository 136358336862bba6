"""Records that an earlier release wrote are read."""

import json
from pathlib import Path

import pytest

from tasks.record.commits import StepCommit
from tasks.record.run import Run
from tasks.record.stored import RecordUnreadable
from tasks.record.versions import read_version, staged_numbers

SCHEMA_1 = Path(__file__).parent / "schema1"
"""As release 0.1 wrote them in a run of configs/tiny-cpu.yaml."""


def test_a_commit_of_schema_1_is_read(run: Run) -> None:
    run.store.create(run.step_key(1, "commit.json"), (SCHEMA_1 / "commit.json").read_bytes())
    commit = run.commits.read(1)
    assert (commit.step, commit.version, commit.weights.parent, commit.cursor, commit.seed) == (
        1,
        1,
        0,
        32,
        0,
    )
    assert (commit.weights.format, commit.weights.bytes, commit.publish.transport) == (
        "float32",
        1771008,
        "disk",
    )
    (credit,) = commit.credits
    assert (credit.version, credit.tokens, credit.samples, credit.reward) == (0, 3126, 256.0, 0.234375)
    assert commit.stages["train"].seconds == pytest.approx(0.8127339, abs=1e-6)
    assert commit.stages["publish"].end == commit.created_at


def test_a_commit_of_a_newer_schema_is_refused_by_name(run: Run) -> None:
    document = {"schema": 3} | json.loads((SCHEMA_1 / "commit.json").read_text())
    run.store.create(run.step_key(1, "commit.json"), json.dumps(document).encode())
    with pytest.raises(RecordUnreadable, match=r"commit\.json has schema 3 and this release reads up to 2"):
        run.commits.read(1)


def test_a_version_record_of_release_0_1_is_read(run: Run) -> None:
    record = {
        "version": 4,
        "parent": 3,
        "step": 4,
        "hash": "ab",
        "bytes": 24,
        "manifest": {},
        "created_at": 1.0,
    }
    run.store.create(f"{run.id}/versions/000004/manifest.json", json.dumps(record).encode())
    assert staged_numbers(run) == [4]
    version = read_version(run, 4)
    assert (version.number, version.parent, version.hash, version.format) == (4, 3, "ab", "float32")


def test_a_commit_is_written_with_its_schema(run: Run, make_commit) -> None:  # type: ignore[no-untyped-def]
    commit: StepCommit = make_commit(2)
    run.commits.append(commit)
    assert json.loads(run.store.read(run.step_key(2, "commit.json")))["schema"] == 2
    assert run.commits.read(2) == commit
