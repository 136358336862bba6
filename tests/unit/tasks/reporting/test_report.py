"""A run in figures, also when it has none yet."""

from collections.abc import Callable

import pytest
from markdown_it import MarkdownIt

from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import save_report
from tasks.record.run import Run
from tasks.reporting.ledger import read_ledger
from tasks.reporting.report import report_of
from tests.support.versions import commit_steps

MakeCommit = Callable[..., StepCommit]


def test_a_run_that_has_not_begun(run: Run) -> None:
    report = report_of(run)
    assert (report.steps, report.steps_wanted) == (0, 3)
    unknown = report.model_dump(exclude={"run_id", "description", "steps", "steps_wanted", "evaluations"})
    assert set(unknown.values()) == {None}
    assert dict(report.figures())["best weight version"] == "-"
    assert report.evaluations == {}
    assert dict(report.figures())["reward, step 1 -> last five"] == "n/a -> n/a"
    assert "| steps | 0 of 3 |" in report.markdown()


def test_a_run_with_its_initial_weights_alone(run: Run, make_commit: MakeCommit) -> None:
    run.commits.append(make_commit(0))
    report = report_of(run)
    assert (report.steps, report.version, report.hash) == (0, 0, "0" * 64)
    assert (report.reward_first, report.reward_last, report.step_seconds) == (None, None, None)


def test_figures_of_a_run(run: Run, make_commit: MakeCommit) -> None:
    for step in range(8):
        timed = {**make_commit(step).metrics, "time/step": 4.0 + step, "time/overhead": 0.25}
        run.commits.append(make_commit(step, metrics=timed))
    report = report_of(run)
    assert (report.steps, report.version) == (7, 7)
    assert report.reward_first == 0.41
    assert report.reward_last == pytest.approx(0.45)  # of steps 3 to 7
    assert report.logprob_abs_diff_max == pytest.approx(7e-5)
    assert report.step_seconds == pytest.approx(8.0)  # step 0 is not a step of training
    assert report.overhead_seconds == 0.25
    figures = dict(report.figures())
    assert figures["newest weight version"] == "7 (0000000000000000)"
    assert figures["max |trainer - rollout| logprob"] == "7e-05"
    assert figures["seconds a step (overhead)"] == "8.000 (0.250)"


def test_steps_without_a_graded_sample_have_no_reward_and_are_left_out(
    run: Run, make_commit: MakeCommit
) -> None:
    run.commits.append(make_commit(0))
    run.commits.append(make_commit(1, metrics={"time/step": 2.0}))
    report = report_of(run)
    assert (report.reward_first, report.reward_last, report.logprob_abs_diff_max) == (None, None, None)
    assert (report.steps, report.step_seconds) == (1, 2.0)

    run.commits.append(make_commit(2))
    assert report_of(run).reward_last == 0.42


def test_the_best_version_is_told_with_its_line_of_the_ledger(
    run: Run, make_commit: MakeCommit, make_report: Callable[..., EvaluationReport]
) -> None:
    commit_steps(run, make_commit, 3)
    save_report(run, make_report(1, "held-out", avg_at_k=0.75))
    save_report(run, make_report(2, "held-out", avg_at_k=0.5))
    report = report_of(run)
    assert report.best == read_ledger(run)[1]
    assert dict(report.figures())["best weight version"] == "1 (avg@k 0.750)"

    save_report(run, make_report(2, "held-out", avg_at_k=0.8))
    assert dict(report_of(run).figures())["best weight version"] == "2 (avg@k 0.800)"


def test_evaluations_are_told_version_by_version(
    run: Run, make_commit: MakeCommit, make_report: Callable[..., EvaluationReport]
) -> None:
    run.commits.append(make_commit(0))
    save_report(run, make_report(0, "held-out", greedy=0.125))
    save_report(run, make_report(3, "held-out", greedy=0.75))
    save_report(run, make_report(3, "aime", greedy=0.0))
    report = report_of(run)
    assert sorted(report.evaluations) == [0, 3]
    assert report.evaluations[3]["eval/held-out/greedy"] == 0.75
    figures = dict(report.figures())
    assert figures["eval/held-out/greedy"] == "0.125 (v0) -> 0.750 (v3)"
    assert figures["eval/aime/greedy"] == "0.000 (v3)"
    assert "| eval/held-out/greedy | 0.125 (v0) -> 0.750 (v3) |" in report.markdown()


def test_every_figure_is_a_row_of_two_cells_in_prefects_page(run: Run, make_commit: MakeCommit) -> None:
    run.commits.append(make_commit(0))
    report = report_of(run)
    tokens = MarkdownIt().enable("table").parse(report.markdown())
    cells = [
        "".join(child.content for child in (tokens[at + 1].children or [])[:1])
        for at, token in enumerate(tokens)
        if token.type == "td_open"
    ]
    assert list(zip(cells[::2], cells[1::2], strict=True)) == report.figures()
