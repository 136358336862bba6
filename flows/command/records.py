"""Look at what runs have recorded."""

import sys

import typer

from configs.errors import UserError
from flows.command.options import Json, RunId
from flows.command.output import console, print_json, print_report
from infra.home import Home

app = typer.Typer()


@app.command()
def runs(as_json: Json = False) -> None:
    """List the runs of the state folder: state, date, steps, reward, and avg@k of the best version."""
    from flows.tables import runs_table
    from tasks.record.runs import all_runs
    from tasks.reporting.summary import summary_of

    found = []
    for run in all_runs(Home.find()):
        try:
            found.append(summary_of(run))
        except UserError as error:
            print(f"{run.id}: {error.line}", file=sys.stderr)
    found.sort(key=lambda run: run.updated_at)
    if as_json:
        print_json("runs", found)
    else:
        console.print(runs_table(found) if found else "none")


@app.command()
def show(run_id: RunId, as_json: Json = False) -> None:
    """Show what a run achieved so far."""
    from tasks.record.runs import load_run
    from tasks.reporting.report import report_of

    print_report("show", report_of(load_run(run_id, Home.find())), as_json)


@app.command()
def ledger(run_id: RunId, as_json: Json = False) -> None:
    """List a run's weight versions: parent, hash, how each was published, its reward and divergence."""
    from flows.tables import ledger_table
    from tasks.record.runs import load_run
    from tasks.reporting.ledger import read_ledger

    records = read_ledger(load_run(run_id, Home.find()))
    if as_json:
        print_json("ledger", records)
    else:
        console.print(ledger_table(records) if records else "none")
        if records and (origin := records[0].origin):
            console.print(f"version 0 is {origin}, hash {origin.hash}")


@app.command(name="sync-mlflow")
def sync_mlflow(run_id: RunId, as_json: Json = False) -> None:
    """Bring MLflow up to date with a run's commits; repeating it adds nothing."""
    from tasks.record.runs import load_run
    from tasks.reporting.summary import summary_of
    from tasks.reporting.tracking import finish_run

    run = load_run(run_id, Home.find())
    finish_run(run)
    if as_json:
        print_json("sync-mlflow", summary_of(run))
