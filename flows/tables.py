"""Records as tables that a person reads; --json prints the same records whole."""

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.markup import escape
from rich.table import Column, Table

from tasks.probe.report import AlignmentReport, LayerAlignment
from tasks.reporting.ledger import VersionRecord

_HASH_DIGITS = 12
_ACCURACY = "avg_at_k"


def table_of(rows: Sequence[Mapping[str, float | str | None]]) -> Table:
    """At least one row, all of the same columns."""
    table = _table(*rows[0])
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    return table


def ledger_table(records: Sequence[VersionRecord]) -> Table:
    """Every weight version in a line. engines: how many hold it, verified; evaluation: avg@k by dataset."""
    return table_of([_ledger_row(record) for record in records])


def _ledger_row(record: VersionRecord) -> dict[str, float | str | None]:
    return {
        "version": record.version,
        "parent": record.parent if record.origin is None else str(record.origin),
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
    tokens = _table("engine", "sequence", "position", "token", "text", "trainer", "engine's", "difference")
    for engine in report.engines:
        verdict = "aligned" if engine.max <= report.tolerance else f"over {report.tolerance:g}"
        engines.add_row(engine.engine, *map(_cell, (engine.mean, engine.p99, engine.max)), verdict)
        for worst in engine.worst:
            tokens.add_row(
                engine.engine,
                *map(_cell, (worst.sequence, worst.position, worst.token)),
                escape(repr(worst.text)),
                *(f"{logprob:.6f}" for logprob in (worst.trainer, worst.engine)),
                _cell(worst.difference),
            )
    title = f"version {report.version}: |trainer - engine| of {report.tokens} log-probabilities, nats"
    return Group(title, engines, "worst tokens", tokens, *(_layers(report.layers) if report.layers else ()))


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
    return Table(*(Column(head, overflow="fold") for head in heads))


def _cell(value: float | str | None) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-" if value is None else str(value)
