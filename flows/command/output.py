"""How the command prints: tables for people, JSON for programs."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from tasks.reporting.report import RunReport

_PLAIN_WIDTH = 200
"""Columns of a table that goes to a pipe or a file, where COLUMNS does not say."""
_is_plain = not sys.stdout.isatty() and "COLUMNS" not in os.environ
console = Console(highlight=False, soft_wrap=True, width=_PLAIN_WIDTH if _is_plain else None)


def progress_console(as_json: bool) -> Console:
    """Progress goes to stderr when stdout carries JSON."""
    return Console(stderr=True, highlight=False, soft_wrap=True) if as_json else console


def print_json(subcommand: str, document: Any) -> None:
    """Print the document that `flows.command.documents` has for the subcommand."""
    from flows.command.documents import dump

    print(dump(subcommand, document))


def print_report(subcommand: str, report: "RunReport", as_json: bool) -> None:
    from flows import display

    if as_json:
        print_json(subcommand, report)
    else:
        display.print_report(report, console)


def print_rows(rows: Sequence[Mapping[str, Any]], by_importance: Sequence[str] = ()) -> None:
    """Print a line a row; `by_importance` says which columns go last where the terminal is narrow."""
    from flows.tables import FittedTable

    console.print(FittedTable(rows, by_importance) if rows else "none")
