"""Every version says what became of it, and how it did with what it generated."""

from collections.abc import Callable

import pytest
import torch

from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import save_report
from tasks.record.run import Run
from tasks.record.stored import RecordUnreadable
from tasks.reporting.ledger import VersionRecord, read_ledger
from tests.support.versions import credit_of, stage_tensors

MakeCommit = Callable[..., StepCommit]


def test_an_empty_run_has_an_empty_ledger(run: Run) -> None:
    assert read_ledger(run) == []


def test_versions_are_staged_then_published_then_retired(run: Run, make_commit: MakeCommit) -> None:
    versions = [stage_tensors(run, {"w": torch.full((2,), float(step))}, step) for step in range(3)]
    for step in (0, 1):
        run.commits.append(make_commit(step, weights=versions[step]))
    ledger = read_ledger(run)
    assert [(r.version, r.parent, r.step, r.hash, r.bytes, r.format) for r in ledger] == [
        (v.number, v.parent, v.step, v.hash, v.bytes, v.format) for v in versions
    ]
    assert [r.state for r in ledger] == ["retired", "published", "staged"]
    assert [r.created_at is None for r in ledger] == [False, False, True]
    assert ledger[2] == VersionRecord(**versions[2].model_dump(exclude={"number"}), version=2, state="staged")


def test_a_replaced_try_of_a_step_stays_staged(run: Run, make_commit: MakeCommit) -> None:
    versions = [
        stage_tensors(run, {"w": torch.full((2,), float(value))}, step, 0 if step else None)
        for value, step in ((0, 0), (1, 1), (2, 1))
    ]
    run.commits.append(make_commit(0, weights=versions[0]))
    run.commits.append(make_commit(1, weights=versions[2]))
    assert [r.state for r in read_ledger(run)] == ["retired", "staged", "published"]


def test_a_record_says_how_the_version_was_published(run: Run, make_commit: MakeCommit) -> None:
    for step in range(2):
        run.commits.append(make_commit(step, format="fp8_block"))
    first = read_ledger(run)[1]
    assert (first.format, first.transport, first.engines) == ("fp8_block", "disk", {"engine-0": first.hash})
    assert (first.bytes, first.sent_bytes, first.seconds, first.gb_per_second) == (
        1_500_000,
        1_500_000,
        0.5,
        0.003,
    )
    assert (first.probe_abs_diff_max, first.checkpoint) == (1e-6, "unit-1/checkpoints/000001")
    assert first.created_at == 1_800_000_004.5


def test_a_version_has_the_figures_of_what_it_generated_and_the_newest_has_none_yet(
    run: Run, make_commit: MakeCommit
) -> None:
    for step in range(3):
        run.commits.append(make_commit(step))
    told = [(r.reward, r.length, r.divergence, r.entropy) for r in read_ledger(run)]
    assert told == [(0.41, 11.0, 1e-6, 0.1), (0.42, 12.0, 2e-6, 0.2), (None, None, None, None)]

    run.commits.append(make_commit(3))
    assert [r.reward for r in read_ledger(run)] == [0.41, 0.42, 0.43, None]


def test_a_version_that_generated_two_batches_has_the_figures_of_both(
    run: Run, make_commit: MakeCommit
) -> None:
    run.commits.append(make_commit(0))
    for step in (1, 2):  # one step ahead: version 0 generated the second batch, too
        run.commits.append(make_commit(step, credits=(credit_of(max(0, step - 2), step),)))
    initial, first, second = read_ledger(run)
    assert (initial.reward, initial.length) == (pytest.approx(0.415), 11.5)
    assert first.reward is second.reward is None


def test_a_version_is_evaluated_before_it_has_generated_a_batch(
    run: Run, make_commit: MakeCommit, make_report: Callable[..., EvaluationReport]
) -> None:
    run.commits.append(make_commit(0))
    run.commits.append(make_commit(1))
    save_report(run, make_report(1, "held-out", avg_at_k=0.6))
    save_report(run, make_report(1, "aime", avg_at_k=0.1))
    initial, newest = read_ledger(run)
    assert initial.evaluation is None
    assert newest.reward is None and newest.evaluation is not None
    assert newest.evaluation["eval/held-out/avg_at_k"] == 0.6
    assert newest.evaluation["eval/aime/avg_at_k"] == 0.1


def test_a_commit_of_other_weights_than_staged_is_told_in_one_line(run: Run, make_commit: MakeCommit) -> None:
    staged = stage_tensors(run, {"w": torch.zeros(2)}, 0)
    run.commits.append(make_commit(0, hash="something else"))
    with pytest.raises(RecordUnreadable) as told:
        read_ledger(run)
    assert str(told.value) == (
        f"run unit-1: version 0 was staged with hash {staged.hash} but step 0 committed something else: "
        "the run store was changed by hand"
    )


def test_the_store_is_listed_as_often_for_many_versions_as_for_one(
    run: Run, make_commit: MakeCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    ask = run.store.list

    def noted(prefix: str) -> list[str]:
        listed.append(prefix)
        return ask(prefix)

    monkeypatch.setattr(run.store, "list", noted)
    counts = []
    for step in range(3):
        run.commits.append(make_commit(step))
        listed.clear()
        assert len(read_ledger(run)) == step + 1
        counts.append(len(listed))
    assert len(set(counts)) == 1
