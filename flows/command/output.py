"""How the command prints: tables for people, JSON for programs."""

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from tasks.reporting.report import RunReport

_PLAIN_WIDTH = 200
"""Columns of a table that goes to a pipe or a file."""
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)


def progress_console(as_json: bool) -> Console:
    """Progress goes to stderr when stdout carries JSON."""
    return Console(stderr=True, highlight=False, soft_wrap=True) if as_json else console


def print_report(report: "RunReport", as_json: bool) -> None:
    from flows import display

    if as_json:
        print(report.model_dump_json(indent=1))
    else:
        display.print_report(report, console)


def print_rows(document: Any, rows: list[dict[str, Any]], as_json: bool) -> None:
    from flows.tables import table_of

    if as_json:
        print(json.dumps(document, indent=1))
    else:
        console.print(table_of(rows) if rows else "none")
