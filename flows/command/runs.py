"""Work on a run: train, evaluate, align, export."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from configs.loading import load_config, override
from configs.presets import preset_names
from flows.command.options import ConfigPath, Json, Overrides, RunId, RunVersion, version_of
from flows.command.output import console, print_json, print_report, print_rows, progress_console
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
    _train("run", create_run(wanted, home, run_id), as_json)


@app.command()
def resume(run_id: RunId, overrides: Overrides = None, as_json: Json = False) -> None:
    """Continue a run from its last commit, with other settings for the steps to come if wanted."""
    from tasks.cluster.preflight import preflight
    from tasks.record.runs import exclusive, load_run, require_not_abandoned, revise_run

    home = Home.find()
    wanted = load_run(run_id, home)
    require_not_abandoned(wanted)
    with exclusive(wanted):
        if overrides:
            wanted = revise_run(wanted, overrides)
        preflight(wanted.config, home)
        _train("resume", wanted, as_json)


@app.command()
def abandon(run_id: RunId, as_json: Json = False) -> None:
    """Give a run up: no night continues it or goes on from it, and MLflow shows it as killed."""
    from tasks.record.abandonment import abandon_run
    from tasks.record.runs import exclusive, load_run
    from tasks.reporting.summary import summary_of
    from tasks.reporting.tracking import finish_run

    run = load_run(run_id, Home.find())
    with exclusive(run):
        abandon_run(run)
    if not as_json:
        console.print(f"abandoned {run.id}: what it made stays")
    finish_run(run)
    if as_json:
        print_json("abandon", summary_of(run))


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
    if as_json:
        from flows.command.documents import Evaluated

        print_json("eval", Evaluated(run_id=run.id, **report.model_dump()))
    else:
        print_rows([{"metric": name, "value": value} for name, value in report.metrics().items()])


@app.command()
def align(
    target: Annotated[
        str,
        typer.Argument(metavar="CONFIG|RUN", help="Preset or YAML file, or a run for its newest version."),
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
        from flows.command.documents import Aligned

        print_json("align", Aligned(run_id=run.id, **report.model_dump()))
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
    as_json: Json = False,
) -> None:
    """Write a weight version as a Hugging Face checkpoint, verified tensor by tensor."""
    from tasks.publishing.export import export_version
    from tasks.record.runs import newest_version

    run, version = version_of(target)
    version = newest_version(run) if version is None else version
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what is half written is removed
    written = export_version(run, version, folder, format_name)
    if as_json:
        from flows.command.documents import Exported

        exported = Exported(
            run_id=run.id,
            version=version,
            folder=str(folder.absolute()),
            tensors=len(written.tensors),
            bytes=written.bytes,
            hash=written.hash,
        )
        print_json("export", exported)
        return
    console.print(
        f"version {version} of {run.id} in {folder}: {len(written.tensors)} tensors, "
        f"{written.bytes / 1e6:.1f} MB, hash {written.hash}"
    )


@contextmanager
def _run_to_align(target: str, overrides: list[str]) -> Iterator["Run"]:
    """The run of that id; for a YAML file or a preset a passing one."""
    from tasks.record.runs import load_run, passing_run

    if Path(target).suffix in (".yaml", ".yml") or target in preset_names():
        with passing_run(load_config(Path(target), overrides), Home.find()) as run:
            yield run
    else:
        run = load_run(target, Home.find())
        yield run.model_copy(update={"config": override(run.config, overrides)})


def _train(subcommand: str, run: "Run", as_json: bool) -> None:
    from flows.session import train

    report = train(run, progress_console(as_json))
    print_report(subcommand, report, as_json)
    if not as_json:
        console.print(f"weight versions: overnight ledger {run.id}")
