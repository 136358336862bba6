"""Records as tables that a person reads; --json prints the same records whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.markup import escape
from rich.table import Column, Table

from tasks.probe.report import AlignmentReport, LayerAlignment
from tasks.reporting.ledger import VersionRecord
from tasks.reporting.summary import RunSummary

Cell = float | str | None
"""What a table shows; None is a dash."""
_UNBOUNDED = 10_000
"""Columns of a terminal on which every table fits."""
_HASH_DIGITS = 12
_TOKEN_COLUMNS = ("engine", "text", "trainer", "engine's", "difference", "position", "sequence")
_RUN_COLUMNS = ("run", "state", "steps", "reward", "avg@k", "date", "version", "best")
_LEDGER_COLUMNS = (
    *("version", "hash", "state", "reward", "evaluation", "divergence", "parent", "step"),
    *("seconds", "MB", "engines", "probe diff", "transport", "format", "checkpoint", "sent MB", "GB/s"),
)
_ACCURACY = "avg_at_k"


@dataclass(frozen=True)
class FittedTable:
    """A line a row. Where it is printed on too few columns, the least important ones are left out."""

    rows: Sequence[Mapping[str, Cell]]
    """At least one, all of the same columns."""
    by_importance: Sequence[str] = ()
    """Columns, the most important first; the others follow from left to right."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = list(self.rows[0])
        spare = [*self.by_importance, *(name for name in columns if name not in self.by_importance)]
        table = self._of(columns)
        while (
            len(spare) > 1
            and console.measure(table, options=options.update(width=_UNBOUNDED)).maximum > options.max_width
        ):
            columns.remove(spare.pop())
            table = self._of(columns)
        yield table

    def _of(self, columns: Sequence[str]) -> Table:
        table = _table(*columns)
        for row in self.rows:
            table.add_row(*(_cell(row[name]) for name in columns))
        return table


def text_table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    """Rows, at least one, of texts that are folded where they do not fit."""
    table = _table(*rows[0])
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    return table


def runs_table(runs: Sequence[RunSummary]) -> FittedTable:
    """Every run in a line. avg@k: that of the best version on held-out problems."""
    return FittedTable([_run_row(run) for run in runs], _RUN_COLUMNS)


def _run_row(run: RunSummary) -> dict[str, Cell]:
    return {
        "run": run.run_id,
        "state": run.state,
        "date": f"{datetime.fromtimestamp(run.updated_at):%Y-%m-%d %H:%M}",
        "steps": f"{run.steps}/{run.steps_wanted}",
        "version": run.version,
        "reward": run.reward_last,
        "best": run.best_version,
        "avg@k": run.avg_at_k,
        "configuration": run.name,
    }


def ledger_table(records: Sequence[VersionRecord]) -> FittedTable:
    """Every weight version in a line. engines: how many hold it, verified; evaluation: avg@k by dataset."""
    return FittedTable([_ledger_row(record) for record in records], _LEDGER_COLUMNS)


def _ledger_row(record: VersionRecord) -> dict[str, Cell]:
    return {
        "version": record.version,
        "parent": record.parent,
        "step": record.step,
        "state": record.state,
        "hash": record.hash[:_HASH_DIGITS],
        "format": record.format,
        "transport": record.transport,
        "MB": record.bytes / 1e6,
        "sent MB": None if record.sent_bytes is None else record.sent_bytes / 1e6,
        "seconds": record.seconds,
        "GB/s": record.gb_per_second,
        "engines": len(record.engines),
        "probe diff": record.probe_abs_diff_max,
        "reward": record.reward,
        "divergence": record.divergence,
        "checkpoint": record.checkpoint and record.checkpoint.rpartition("/")[2],
        "evaluation": _accuracies(record.evaluation or {}),
    }


def _accuracies(metrics: dict[str, float]) -> str:
    told = {name.split("/")[1]: value for name, value in metrics.items() if name.endswith(f"/{_ACCURACY}")}
    return ", ".join(f"{dataset} {value:.3f}" for dataset, value in told.items()) or "-"


def alignment_tables(report: AlignmentReport) -> Group:
    """How far each engine is from the trainer and on which tokens most; then the layers, if compared."""
    engines = _table("engine", "mean", "p99", "max", "verdict")
    tokens: list[dict[str, Cell]] = []
    for engine in report.engines:
        verdict = "aligned" if engine.max <= report.tolerance else f"over {report.tolerance:g}"
        engines.add_row(engine.engine, *map(_cell, (engine.mean, engine.p99, engine.max)), verdict)
        for worst in engine.worst:
            tokens.append(
                {
                    "engine": engine.engine,
                    "sequence": worst.sequence,
                    "position": worst.position,
                    "token": worst.token,
                    "text": repr(worst.text),
                    "trainer": f"{worst.trainer:.6f}",
                    "engine's": f"{worst.engine:.6f}",
                    "difference": worst.difference,
                }
            )
    worst_tokens = ("worst tokens", FittedTable(tokens, _TOKEN_COLUMNS)) if tokens else ()
    title = f"version {report.version}: |trainer - engine| of {report.tokens} log-probabilities, nats"
    return Group(title, engines, *worst_tokens, *(_layers(report.layers) if report.layers else ()))


def _layers(layers: LayerAlignment) -> tuple[Table, str]:
    table = _table("module", "max |trainer - folder|", "relative", "verdict")
    for each in layers.modules:
        verdict = "differs first" if each.module == layers.first else ""
        table.add_row(each.module, _cell(each.max_abs), _cell(each.relative), verdict)
    sides = {"trainer": layers.trainer, **layers.engines}
    apart = ", ".join(f"{side} {difference:.2g}" for side, difference in sides.items())
    return table, f"log-probabilities differ from the exported folder's by at most: {apart}"


def _table(*heads: str) -> Table:
    """Cells that do not fit are folded rather than cut short: figures stay whole."""
    return Table(
        *(Column(head, overflow="fold") for head in heads), box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )


def _cell(value: Cell) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-" if value is None else escape(str(value))
