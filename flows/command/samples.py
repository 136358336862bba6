"""Read what versions wrote."""

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from configs.errors import UserError
from flows.command.options import Json, version_of
from flows.command.output import console, print_json

if TYPE_CHECKING:
    from tasks.record.run import Run
    from tasks.record.shown import ShownSample

app = typer.Typer()


@app.command()
def samples(
    target: Annotated[
        str, typer.Argument(metavar="RUN[@VERSION]", help="Run, and the weight version if all are wanted.")
    ],
    step: Annotated[
        int | None, typer.Option(help="The step whose batch is shown; the newest if absent.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Problems of a batch that are shown, the first ones.")
    ] = 4,
    as_json: Json = False,
) -> None:
    """Show prompts, responses and how they were judged: of a step, or all that a version wrote.

    What a version wrote is the batches that it generated and the evaluations of it.
    """
    from tasks.reporting.samples import samples_of_version

    run, version = version_of(target)
    if version is None:
        found = _of_step(run, step, limit)
    elif step is None:
        found = samples_of_version(run, version, limit)
    else:
        raise UserError(f"{target} --step {step}: give a version or a step, not both")
    if as_json:
        print_json("samples", found)
    else:
        console.print(_table(found) if found else "none")


def _of_step(run: "Run", step: int | None, limit: int) -> list["ShownSample"]:
    from tasks.reporting.samples import samples_of

    steps = run.commits.steps()
    if step is not None and step not in steps:
        last = f"steps up to {steps[-1]}" if steps else "no step"
        raise UserError(f"--step {step}: run {run.id} has {last}")
    return samples_of(run, run.commits.read(steps[-1] if step is None else step), limit) if steps else []


def _table(found: list["ShownSample"]) -> Group:
    """A heading and a table for each problem."""
    parts: list[str | Table] = []
    for (source, problem), group in groupby(found, key=lambda each: (_source(each), each.problem)):
        each = list(group)
        parts.append(f"[bold]{escape(f'{source}, {problem}, answer {each[0].answer}')}[/]")
        parts.append(escape(each[0].prompt))
        table = Table("reward", "verdict", "by", "response")
        for shown in each:
            reward = "-" if shown.reward is None else f"{shown.reward:g}"
            table.add_row(reward, shown.verdict, shown.by, escape(shown.response))
        parts.append(table)
    return Group(*parts)


def _source(shown: "ShownSample") -> str:
    return f"step {shown.step}" if shown.dataset is None else shown.dataset
