"""The `overnight` command: RL post-training of language models as a schedule."""

import sys

import typer

from configs.errors import OvernightError, UserError, own_error
from flows.command import nights, records, runs, samples, servers

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
for group in (runs, records, samples, servers, nights):
    app.add_typer(group.app)


def main() -> None:
    """Run the command. A known problem is one line on stderr: exit code 2 if the user can mend it, else 1."""
    try:
        app()
    except OvernightError as raised:
        error = own_error(raised) or raised
        word = "error" if error.exit_code == UserError.exit_code else "failed"
        print(f"{word}: {error.line}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
