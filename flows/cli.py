"""The `overnight` command: thin; every subcommand is a few calls into flows, tasks and infra."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from configs.errors import OvernightError, UserError, own_error
from configs.loading import load_config, override
from infra.home import Home

if TYPE_CHECKING:  # subcommands import what they need: `overnight --help` does not wait for torch
    from tasks.record.run import Run
    from tasks.reporting.report import RunReport

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
_PLAIN_WIDTH = 200
"""Columns of a table that goes to a pipe or a file."""
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ConfigPath = Annotated[Path, typer.Argument(help="YAML config, such as configs/tiny-cpu.yaml.")]
RunId = Annotated[str, typer.Argument(help="Id of a run, as `overnight runs` lists it.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a field: section.field=value. Repeatable.")
]
RunVersion = Annotated[
    str, typer.Argument(metavar="RUN[@VERSION]", help="Run, and the weight version if not the newest.")
]


def main() -> None:
    """Run the command. A known problem is one line on stderr: exit code 2 if the user can mend it, else 1."""
    try:
        app()
    except OvernightError as raised:
        error = own_error(raised) or raised
        word = "error" if error.exit_code == UserError.exit_code else "failed"
        print(f"{word}: {error.line}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


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

    run, version = _version_of(target)
    report = session.evaluate(run, version, dataset, overrides or [], _progress_console(as_json))
    rows = [{"metric": name, "value": value} for name, value in report.metrics().items()]
    _print(report.model_dump(mode="json"), rows, as_json)


@app.command()
def runs(as_json: Json = False) -> None:
    """List the runs of the state folder."""
    from tasks.record.runs import all_runs
    from tasks.reporting.report import report_of

    reports = []
    for run in all_runs(Home.find()):
        try:
            reports.append(report_of(run))
        except UserError as error:
            print(f"{run.id}: {error}", file=sys.stderr)
    rows = [
        {
            "run": r.run_id,
            "steps": f"{r.steps}/{r.steps_wanted}",
            "version": r.version,
            "reward": r.reward_last,
        }
        for r in reports
    ]
    _print([report.model_dump(mode="json") for report in reports], rows, as_json)


@app.command()
def show(run_id: RunId, as_json: Json = False) -> None:
    """Show what a run achieved so far."""
    from tasks.record.runs import load_run
    from tasks.reporting.report import report_of

    _print_report(report_of(load_run(run_id, Home.find())), as_json)


@app.command()
def ledger(run_id: RunId, as_json: Json = False) -> None:
    """List a run's weight versions: parent, hash, how each was published, its reward and divergence."""
    from flows.tables import ledger_table
    from tasks.record.runs import load_run
    from tasks.reporting.ledger import read_ledger

    records = read_ledger(load_run(run_id, Home.find()))
    if as_json:
        print(json.dumps([record.model_dump(mode="json") for record in records], indent=1))
    else:
        console.print(ledger_table(records) if records else "none")


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
        report = session.align(run, layers, _progress_console(as_json))
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
        typer.Option("--format", help="Number format, such as fp8_block or bf16; as it is if absent."),
    ] = None,
) -> None:
    """Write a weight version as a Hugging Face checkpoint, verified tensor by tensor."""
    from tasks.publishing.export import export_version
    from tasks.record.runs import newest_version

    run, version = _version_of(target)
    version = newest_version(run) if version is None else version
    written = export_version(run, version, folder, format_name)
    console.print(
        f"version {version} of {run.id} in {folder}: {len(written.tensors)} tensors, "
        f"{written.bytes / 1e6:.1f} MB, hash {written.hash}"
    )


@app.command(name="sync-mlflow")
def sync_mlflow(run_id: RunId) -> None:
    """Bring MLflow up to date with a run's commits; repeating it adds nothing."""
    from tasks.record.runs import load_run
    from tasks.reporting.tracking import finish_run

    finish_run(load_run(run_id, Home.find()))


@app.command()
def up(
    prefect_port: Annotated[int | None, typer.Option(help="Port of the Prefect server.")] = None,
    mlflow_port: Annotated[int | None, typer.Option(help="Port of the MLflow UI.")] = None,
) -> None:
    """Start the Prefect server, its worker and the MLflow UI, or find them again."""
    from infra.services import Services

    services = Services(Home.find())
    services.ensure_prefect(prefect_port)
    services.ensure_mlflow(mlflow_port)
    services.ensure_worker()
    status()


@app.command()
def down() -> None:
    """Stop the servers that `up`, `run` and `deploy` started; runs and records stay."""
    from infra.services import Services

    Services(Home.find()).stop_all()


@app.command()
def status(as_json: Json = False) -> None:
    """Say which servers are up, and where."""
    from infra.services import Services

    rows = [asdict(service) for service in Services(Home.find()).status()]
    _print(rows, rows, as_json)


@app.command()
def deploy(
    config: ConfigPath,
    cron: Annotated[str, typer.Option(help="When to run, as a cron line.")] = "0 1 * * *",
    timezone: Annotated[str, typer.Option(help="Time zone of the cron line.")] = "UTC",
    overrides: Overrides = None,
) -> None:
    """Schedule the config every night; the deployment's parameters are a form in the Prefect UI."""
    from flows.deployment import deploy as deploy_flow
    from tasks.cluster.preflight import preflight

    home = Home.find()
    wanted = load_config(config, overrides)
    preflight(wanted, home)
    name = deploy_flow(wanted, cron, timezone, home)
    console.print(f'deployed {name} at "{cron}" {timezone}; stop the servers with `overnight down`')


def _version_of(target: str) -> tuple["Run", int | None]:
    """The run that RUN[@VERSION] names, and the version if it names one."""
    from tasks.record.runs import load_run

    run_id, _, version = target.partition("@")
    if version and not version.isdecimal():
        raise UserError(f"{target}: write the version as a number, such as {run_id}@12")
    return load_run(run_id, Home.find()), int(version) if version else None


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

    report = train(run, _progress_console(as_json))
    _print_report(report, as_json)
    if not as_json:
        console.print(f"weight versions: overnight ledger {run.id}")


def _progress_console(as_json: bool) -> Console:
    """Progress goes to stderr when stdout carries JSON."""
    return Console(stderr=True, highlight=False, soft_wrap=True) if as_json else console


def _print_report(report: "RunReport", as_json: bool) -> None:
    from flows.display import print_report

    if as_json:
        print(report.model_dump_json(indent=1))
    else:
        print_report(report, console)


def _print(document: Any, rows: list[dict[str, Any]], as_json: bool) -> None:
    from flows.tables import table_of

    if as_json:
        print(json.dumps(document, indent=1))
    else:
        console.print(table_of(rows) if rows else "none")


if __name__ == "__main__":
    main()
