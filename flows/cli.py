"""The `overnight` command: RL post-training of language models as a schedule."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from configs.errors import OvernightError, UserError, own_error
from flows.command import nights, presets, records, runs, samples, servers
from infra.interrupts import end_at_once

_PANELS = {
    "Work on a run": runs,
    "Look at runs": records,
    "Read what versions wrote": samples,
    "Every night": nights,
    "Servers": servers,
    "Configurations": presets,
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 yours to mend (a line says how), 129 SIGHUP, 130 Ctrl-C, "
    "143 SIGTERM.",
)
for panel, group in _PANELS.items():
    for command in group.app.registered_commands:
        command.rich_help_panel = panel
    app.add_typer(group.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"overnight {version('overnight')}")
        raise typer.Exit


@app.callback(help=__doc__)
def _options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Run the command. A known problem is one line on stderr: exit code 2 if the user can mend it, else 1."""
    end_at_once()
    try:
        app()
    except OvernightError as raised:
        error = own_error(raised) or raised
        word = "error" if error.exit_code == UserError.exit_code else "failed"
        print(f"{word}: {error.line}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
