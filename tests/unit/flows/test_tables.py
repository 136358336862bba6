"""Records as a person reads them."""

import re
from io import StringIO

import pytest
from rich.console import Console, RenderableType

from flows.tables import alignment_tables, ledger_table, runs_table
from tasks.probe.report import (
    AlignmentReport,
    EngineAlignment,
    LayerAlignment,
    ModuleDifference,
    TokenDifference,
)
from tasks.reporting.ledger import VersionRecord
from tasks.reporting.summary import RunSummary

PUBLISHED = VersionRecord(
    version=3,
    parent=1,
    step=2,
    hash="0123456789abcdef" * 4,
    state="published",
    bytes=1_640_000,
    sent_bytes=410_000,
    format="fp8_block",
    transport="disk",
    seconds=0.0521,
    gb_per_second=0.0629,
    engines={"engine-0": "0123", "engine-1": "0123"},
    probe_abs_diff_max=2.63e-6,
    reward=0.4375,
    divergence=1.2e-6,
    checkpoint="unit-1/checkpoints/000002",
    evaluation={"eval/held-out/avg_at_k": 0.6, "eval/held-out/pass_at_k": 0.7, "eval/aime/avg_at_k": 0.1},
    created_at=1.8e9,
)
STAGED = VersionRecord(
    version=2, parent=1, step=2, hash="f" * 64, state="staged", bytes=1_640_000, format="fp8_block"
)


def cells(table: RenderableType, width: int = 300) -> list[list[str]]:
    """The rows of printed tables, heads included, and other lines as one cell."""
    with StringIO() as output:
        Console(file=output, width=width, highlight=False).print(table)
        return [re.split(r"  +", line.strip()) for line in output.getvalue().splitlines()]


def test_the_ledger_says_of_every_version_what_became_of_it() -> None:
    head, staged, published = cells(ledger_table([STAGED, PUBLISHED]))
    assert ", ".join(head) == (
        "version, parent, step, state, hash, format, transport, MB, sent MB, seconds, GB/s, engines, "
        "probe diff, reward, divergence, checkpoint, evaluation"
    )
    named = ["2", "1", "2", "staged", "f" * 12, "fp8_block"]
    assert staged == [*named, "-", "1.64", "-", "-", "-", "0", *["-"] * 5]
    numbers = ["1.64", "0.41", "0.0521", "0.0629", "2", "2.63e-06", "0.438", "1.2e-06"]
    assert published[:7] == ["3", "1", "2", "published", "0123456789ab", "fp8_block", "disk"]
    assert published[7:15] == numbers
    assert published[15:] == ["000002", "held-out 0.600, aime 0.100"]


@pytest.mark.parametrize("width", [80, 100, 130, 200])
def test_a_version_is_one_line_however_narrow_the_terminal(width: int) -> None:
    records = [PUBLISHED.model_copy(update={"version": number, "step": number}) for number in range(1000)]
    rows = cells(ledger_table(records), width)
    assert len(rows) == 1001
    assert rows[0][:1] == ["version"] and {"hash", "state", "reward"} <= set(rows[0])
    assert {"divergence", "evaluation"} <= set(rows[0]) or width == 80
    assert ("checkpoint" in rows[0]) == (width == 200)
    assert rows[7][0] == "6" and "0123456789ab" in rows[7]


def test_a_run_is_one_line() -> None:
    run = RunSummary(
        run_id="tiny-cpu-20260101-010000",
        name="tiny-cpu",
        state="unfinished",
        updated_at=1.8e9,
        steps=12,
        steps_wanted=60,
        version=12,
        reward_last=0.4321,
        best_version=10,
        avg_at_k=0.625,
    )
    head, row = cells(runs_table([run]), 80)
    assert head == ["run", "state", "date", "steps", "reward", "avg@k"]
    assert row[:2] == ["tiny-cpu-20260101-010000", "unfinished"] and row[3:] == ["12/60", "0.432", "0.625"]
    assert len(cells(runs_table([run]), 120)[0]) == 9


@pytest.fixture
def report() -> AlignmentReport:
    """One engine that is off at one token, and the trainer off in layer 1."""
    worst = TokenDifference(sequence=1, position=4, token=17, text="[/INST]\n", trainer=-1.0, engine=-1.5)
    engine = EngineAlignment(engine="engine-0", mean=0.01, p99=0.02, max=0.5, worst=(worst,))
    other = engine.model_copy(update={"engine": "engine-1", "max": 1e-5, "worst": ()})
    modules = [("model.layers.0", 1e-6), ("model.layers.1", 0.25), ("model.norm", 0.5)]
    layers = LayerAlignment(
        tolerance=1e-4,
        modules=tuple(
            ModuleDifference(module=name, max_abs=2 * value, relative=value) for name, value in modules
        ),
        trainer=0.5,
        engines={"engine-0": 1e-6, "engine-1": 0.5},
    )
    return AlignmentReport(version=0, tolerance=1e-4, tokens=60, engines=(engine, other), layers=layers)


def test_an_alignment_report_leads_from_the_engine_to_the_token_to_the_layer(report: AlignmentReport) -> None:
    rows = cells(alignment_tables(report))
    assert rows[0] == ["version 0: |trainer - engine| of 60 log-probabilities, nats"]
    assert ["engine-0", "0.01", "0.02", "0.5", "over 0.0001"] in rows
    assert ["engine-1", "0.01", "0.02", "1e-05", "aligned"] in rows
    assert ["engine-0", "1", "4", "17", r"'[/INST]\n'", "-1.000000", "-1.500000", "0.5"] in rows
    assert ["model.layers.0", "2e-06", "1e-06"] in rows
    assert ["model.layers.1", "0.5", "0.25", "differs first"] in rows
    assert ["model.norm", "1", "0.5"] in rows
    apart = "trainer 0.5, engine-0 1e-06, engine-1 0.5"
    assert rows[-1] == [f"log-probabilities differ from the exported folder's by at most: {apart}"]


def test_layers_are_told_only_where_they_were_compared(report: AlignmentReport) -> None:
    rows = cells(alignment_tables(report.model_copy(update={"layers": None})))
    assert not any(row[0].startswith("model.") for row in rows)


def test_an_alignment_report_fits_80_columns(report: AlignmentReport) -> None:
    rows = cells(alignment_tables(report), 80)
    assert ["engine-0", "0.01", "0.02", "0.5", "over 0.0001"] in rows
    assert ["model.layers.1", "0.5", "0.25", "differs first"] in rows
    assert any(row[:1] == ["engine-0"] and row[-3:] == ["-1.000000", "-1.500000", "0.5"] for row in rows)
