"""Records that an earlier release wrote are read."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from infra.home import Home
from infra.store.local import LocalStore
from tasks.probe.report import AlignmentReport
from tasks.record.batches import read_batch
from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport, ProblemResult
from tasks.record.lineage import open_run
from tasks.record.run import Run
from tasks.record.runs import create_run, load_run
from tasks.record.samples import BatchRef, Problem, RolloutBatch, batch_hash
from tasks.record.stored import RecordUnreadable, read_record, replace_record
from tasks.record.versions import read_version, staged_numbers

SCHEMA_1 = Path(__file__).parent / "schema1"
"""As release 0.1 wrote them."""


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


def test_a_commit_is_written_with_its_schema(run: Run, make_commit: Callable[..., StepCommit]) -> None:
    commit = make_commit(2)
    run.commits.append(commit)
    assert json.loads(run.store.read(run.step_key(2, "commit.json")))["schema"] == 2
    assert run.commits.read(2) == commit


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store with all of them, by name."""
    store = LocalStore(tmp_path / "store")
    for file in SCHEMA_1.iterdir():
        store.create(file.name, file.read_bytes())
    return store


def ref(data: bytes) -> BatchRef:
    return BatchRef(4, "graded.parquet", batch_hash(data))


def test_a_batch(store: LocalStore) -> None:
    batch = read_batch(store, ref(store.read("graded.parquet")))
    assert (batch.step, batch.cursor) == (4, 4 * 2)
    assert [group.problem for group in batch.groups] == [
        Problem("sum-1-2", "1 + 2 = ", "3", "\\boxed{", "sum"),
        Problem("b", "2 - 9 = ", "-7"),
    ]
    assert [sample.reward for sample in batch.samples()] == [1.0, 0.0, 0.0, None]
    assert {sample.ungraded_because for sample in batch.samples()} == {None}
    assert RolloutBatch.from_parquet(batch.to_parquet()) == batch


def test_a_batch_of_a_newer_release_is_refused(store: LocalStore) -> None:
    table = pq.read_table(io.BytesIO(store.read("graded.parquet")))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"schema": "3", "step": "4"}), sink)
    store.replace("graded.parquet", sink.getvalue())
    with pytest.raises(
        RecordUnreadable,
        match=r"graded\.parquet has schema 3 and this release reads up to 2: use a newer release",
    ):
        read_batch(store, ref(sink.getvalue()))


def test_a_report(store: LocalStore) -> None:
    report = read_record(store, "evaluation.json", EvaluationReport)
    assert (report.version, report.greedy, report.ungraded) == (3, 0.5, 0)
    assert report.problems == (
        ProblemResult(
            id="a",
            answer="4",
            greedy_answer="4",
            greedy_correct=True,
            sampled_answers=("4", None, "-5"),
            correct=1,
        ),
        ProblemResult(
            id="b",
            answer="2",
            greedy_answer=None,
            greedy_correct=False,
            sampled_answers=("3", "2", "2"),
            correct=2,
        ),
    )
    replace_record(store, "evaluation.json", report)
    assert read_record(store, "evaluation.json", EvaluationReport) == report


def test_an_alignment_report(store: LocalStore) -> None:
    report = read_record(store, "alignment.json", AlignmentReport)
    assert (report.version, report.aligned) == (1, True)


def test_a_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    LocalStore(home.registry).create("old.json", b'{"kind": "local"}')
    LocalStore(home.runs).create("old/run.json", (SCHEMA_1 / "run.json").read_bytes())
    run = load_run("old", home)
    assert (run.config.name, run.config.seed, run.config.loop.steps) == ("old", 7, 9)
    assert (run.config.reward.kind, run.config.engine.kind) == ("boxed_integer", "embedded")
    assert run.config.algorithm.tis_cap == 3.0
    assert run.config.model.path == Path("/models/tiny")


def test_no_schedule_takes_a_run_for_a_night(tmp_path: Path) -> None:
    home = Home(tmp_path)
    LocalStore(home.registry).create("old.json", b'{"kind": "local"}')
    LocalStore(home.runs).create("old/run.json", (SCHEMA_1 / "run.json").read_bytes())
    run = load_run("old", home)
    assert open_run(run.config, home, None).id != "old"
    other = create_run(run.config.model_copy(update={"store": run.config.store}), home, "new")
    assert load_run("new", home).config == other.config
