"""Look at the configurations that come with the package."""

from pathlib import Path

import typer

from configs.loading import load_config
from configs.presets import preset_names
from flows.command.options import Json
from flows.command.output import console, print_json

app = typer.Typer()


@app.command()
def presets(as_json: Json = False) -> None:
    """List the presets that `run`, `align` and `deploy` know by name."""
    from flows.tables import text_table

    found: list[dict[str, str | float | None]] = [
        {"name": name, "description": load_config(Path(name)).description.strip()} for name in preset_names()
    ]
    if as_json:
        print_json("presets", found)
    else:
        console.print(text_table(found))
