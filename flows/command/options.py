"""Arguments and options that several subcommands take, and what is read from them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from configs.errors import UserError
from infra.home import Home

if TYPE_CHECKING:
    from tasks.record.run import Run

Json = Annotated[bool, typer.Option("--json", help="Print JSON: docs/json-schema.json.")]
ConfigPath = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A preset, such as tiny-cpu, or the path of a YAML file.")
]
RunId = Annotated[str, typer.Argument(help="Id of a run, as `overnight runs` lists it.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a field: section.field=value. Repeatable.")
]
RunVersion = Annotated[
    str, typer.Argument(metavar="RUN[@VERSION]", help="Run, and the weight version if not the newest.")
]


def version_of(target: str) -> tuple["Run", int | None]:
    """The run that RUN[@VERSION] names, and the version if it names one."""
    from tasks.record.runs import load_run

    run_id, _, version = target.partition("@")
    if version and not version.isdecimal():
        raise UserError(f"{target}: write the version as a number, such as {run_id}@12")
    return load_run(run_id, Home.find()), int(version) if version else None
