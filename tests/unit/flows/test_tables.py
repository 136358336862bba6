"""Records as a person reads them."""

from io import StringIO

import pytest
from rich.console import Console, RenderableType

from flows.tables import alignment_tables, ledger_table
from tasks.probe.report import (
    AlignmentReport,
    EngineAlignment,
    LayerAlignment,
    ModuleDifference,
    TokenDifference,
)
from tasks.reporting.ledger import VersionRecord

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


def cells(table: RenderableType) -> list[list[str]]:
    """The rows of printed tables, heads included, and other lines as one cell."""
    with StringIO() as output:
        Console(file=output, width=300, highlight=False).print(table)
        lines = output.getvalue().splitlines()
    rows = [line.replace("┃", "│") for line in lines if not line.startswith(("┏", "┡", "└"))]
    return [
        [cell.strip() for cell in row.strip().removeprefix("│").removesuffix("│").split("│")] for row in rows
    ]


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
    assert ["model.layers.0", "2e-06", "1e-06", ""] in rows
    assert ["model.layers.1", "0.5", "0.25", "differs first"] in rows
    assert ["model.norm", "1", "0.5", ""] in rows
    apart = "trainer 0.5, engine-0 1e-06, engine-1 0.5"
    assert rows[-1] == [f"log-probabilities differ from the checkpoint's by at most: {apart}"]


def test_layers_are_told_only_where_they_were_compared(report: AlignmentReport) -> None:
    rows = cells(alignment_tables(report.model_copy(update={"layers": None})))
    assert not any(row[0].startswith("model.") for row in rows)
