"""Work on a run: train, evaluate, align, export."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from configs.loading import load_config, override
from flows.command.options import ConfigPath, Json, Overrides, RunId, RunVersion, version_of
from flows.command.output import console, print_report, print_rows, progress_console
from infra.home import Home

if TYPE_CHECKING:
    from tasks.record.run import Run

app = typer.Typer()


@app.command()
def run(
    config: ConfigPath,
    overrides: Overrides = None,
    run_id: Annotated[
        str | None, typer.Option(help="Id of the run; made from name and time if absent.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train as the config says, evaluate and report; leaves the Prefect and MLflow UIs up."""
    from tasks.cluster.preflight import preflight
    from tasks.record.runs import create_run

    home = Home.find()
    wanted = load_config(config, overrides)
    preflight(wanted, home)
    _train(create_run(wanted, home, run_id), as_json)


@app.command()
def resume(run_id: RunId, overrides: Overrides = None, as_json: Json = False) -> None:
    """Continue a run from its last commit, with other settings for the steps to come if wanted."""
    from tasks.cluster.preflight import preflight
    from tasks.record.runs import exclusive, load_run, revise_run

    home = Home.find()
    wanted = load_run(run_id, home)
    if overrides:
        with exclusive(wanted):
            wanted = revise_run(wanted, overrides)
    preflight(wanted.config, home)
    _train(wanted, as_json)


@app.command(name="eval")
def evaluate(
    target: RunVersion,
    dataset: Annotated[
        Path | None,
        typer.Option(help="JSONL with `problem` and `answer`; the run's held-out problems if absent."),
    ] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Evaluate a weight version offline: greedy, avg@k, pass@k, maj@k, truncation, 95 % interval."""
    from flows import session

    run, version = version_of(target)
    report = session.evaluate(run, version, dataset, overrides or [], progress_console(as_json))
    rows = [{"metric": name, "value": value} for name, value in report.metrics().items()]
    print_rows(report.model_dump(mode="json"), rows, as_json)


@app.command()
def align(
    target: Annotated[
        str, typer.Argument(metavar="CONFIG|RUN", help="YAML config, or a run for its newest version.")
    ],
    layers: Annotated[
        bool, typer.Option("--layers", help="Also say which layer of the trainer differs first.")
    ] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Compare trainer and engines token by token; exit code 0 when they agree within the tolerance."""
    from flows import session
    from flows.tables import alignment_tables
    from tasks.cluster.preflight import preflight
    from tasks.probe.records import require_aligned

    with _run_to_align(target, overrides or []) as run:
        preflight(run.config, run.home)
        report = session.align(run, layers, progress_console(as_json))
    if as_json:
        print(report.model_dump_json(indent=1))
    else:
        console.print(alignment_tables(report))
    require_aligned(run, report)


@app.command()
def export(
    target: RunVersion,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it: a new or empty folder.")],
    format_name: Annotated[
        str | None,
        typer.Option("--format", help="Number format: bfloat16, fp8_channel, ...; as it is if absent."),
    ] = None,
) -> None:
    """Write a weight version as a Hugging Face checkpoint, verified tensor by tensor."""
    from tasks.publishing.export import export_version
    from tasks.record.runs import newest_version

    run, version = version_of(target)
    version = newest_version(run) if version is None else version
    written = export_version(run, version, folder, format_name)
    console.print(
        f"version {version} of {run.id} in {folder}: {len(written.tensors)} tensors, "
        f"{written.bytes / 1e6:.1f} MB, hash {written.hash}"
    )


@contextmanager
def _run_to_align(target: str, overrides: list[str]) -> Iterator["Run"]:
    """The run of that id; for a YAML file a passing one."""
    from tasks.record.runs import load_run, passing_run

    if Path(target).suffix in (".yaml", ".yml"):
        with passing_run(load_config(Path(target), overrides), Home.find()) as run:
            yield run
    else:
        run = load_run(target, Home.find())
        yield run.model_copy(update={"config": override(run.config, overrides)})


def _train(run: "Run", as_json: bool) -> None:
    from flows.session import train

    report = train(run, progress_console(as_json))
    print_report(report, as_json)
    if not as_json:
        console.print(f"weight versions: overnight ledger {run.id}")
