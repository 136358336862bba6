"""What a person reads of a step and of a run."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from configs.loading import load_config
from flows.display import RunDisplay, print_report, step_line
from infra.home import Home
from infra.process import wait_until
from tasks.record.commits import PublishReport, StepCommit
from tasks.record.interval import Interval
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.record.weight_version import WeightVersion
from tasks.reporting.report import report_of
from tests.support.command import CONFIGS

METRICS = {
    "reward/mean": 0.4375,
    "divergence/logprob_abs_diff_max": 1.26e-5,
    "time/step": 2.0,
    "time/generate": 1.234,
    "time/train": 0.5,
    "time/publish": 0.08,
    "time/overhead": 0.111,
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of four steps."""
    config = load_config(CONFIGS / "tiny-cpu.yaml", ["loop.steps=4"])
    return Run(id="unit-1", config=config, home=Home(tmp_path))


def commit_of(step: int, metrics: dict[str, float] | None = None) -> StepCommit:
    return StepCommit(
        weights=WeightVersion(
            number=step + 1 if step else 0,
            parent=step if step else None,
            step=step,
            hash="f" * 64,
            bytes=1,
            format="float32",
        ),
        batch=BatchRef(step, "batch", "0" * 64) if step else None,
        cursor=32 * step,
        seed=0,
        checkpoint=None,
        publish=PublishReport(
            transport="disk",
            transfer_seconds=0.5,
            interval=Interval(1.8e9 - 0.6, 1.8e9),
            sent_bytes=1,
            gb_per_second=0.1,
            engine_hashes={},
            probe_abs_diff_max=2.6e-6,
        ),
        credits=(),
        stages={},
        metrics=METRICS if metrics is None else metrics,
        created_at=1.8e9,
    )


def test_the_line_of_a_step() -> None:
    assert step_line(commit_of(3), 60) == (
        "step 3/60  version 4  reward 0.438  divergence max 1e-05"
        "  generate 1.23 train 0.50 publish 0.08 overhead 0.11 s"
    )


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "step 3/60  version 4  reward 0.438  divergence max 1e-05  2.00 s"),
        (50, "step 3/60  version 4  reward 0.438  2.00 s"),
        (10, "step 3/60  version 4"),
    ],
)
def test_the_line_of_a_step_is_shorter_where_there_is_less_room(width: int, line: str) -> None:
    assert step_line(commit_of(3), 60, width) == line


def test_the_line_of_the_initial_weights() -> None:
    assert step_line(commit_of(0, {}), 60) == "step 0/60  version 0 published, probe diff 3e-06"


def test_the_line_of_a_step_without_a_graded_sample() -> None:
    line = step_line(commit_of(3, {"time/train": 0.5}), 60)
    assert line.startswith("step 3/60  version 4  reward nan  divergence max nan")


@pytest.fixture
def output() -> Iterator[StringIO]:
    with StringIO() as output:
        yield output


@pytest.mark.parametrize("terminal", [False, True])
def test_a_display_shows_every_step_that_was_committed_meanwhile_once(
    run: Run, output: StringIO, terminal: bool
) -> None:
    run.commits.append(commit_of(0, {}))
    console = Console(file=output, width=200, force_terminal=terminal, highlight=False)
    with RunDisplay(run, console):
        run.commits.append(commit_of(1))
        wait_until(lambda: "step 1/4" in output.getvalue(), 10, "the first step's line", every_s=0.02)
        run.commits.append(commit_of(2))
    text = output.getvalue()
    assert [text.count(f"step {step}/4") for step in range(3)] == [0, 1, 1]
    assert ("3 steps left" in text) == terminal


def test_the_report_is_a_table_with_the_runs_remark(run: Run, output: StringIO) -> None:
    run.commits.append(commit_of(0, {}))
    run.commits.append(commit_of(1))
    print_report(report_of(run), Console(file=output, width=200, highlight=False))
    text = output.getvalue()
    assert "unit-1" in text and "1 of 4" in text and "0.438 -> 0.438" in text
    assert "mainly a change of strategy" in text
