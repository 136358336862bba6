"""Look at what runs have recorded."""

import json
import sys

import typer

from configs.errors import UserError
from flows.command.options import Json, RunId
from flows.command.output import console, print_report, print_rows
from infra.home import Home

app = typer.Typer()


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
    print_rows([report.model_dump(mode="json") for report in reports], rows, as_json)


@app.command()
def show(run_id: RunId, as_json: Json = False) -> None:
    """Show what a run achieved so far."""
    from tasks.record.runs import load_run
    from tasks.reporting.report import report_of

    print_report(report_of(load_run(run_id, Home.find())), as_json)


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
        if records and (origin := records[0].origin):
            console.print(f"version 0 is {origin}, hash {origin.hash}")


@app.command(name="sync-mlflow")
def sync_mlflow(run_id: RunId) -> None:
    """Bring MLflow up to date with a run's commits; repeating it adds nothing."""
    from tasks.record.runs import load_run
    from tasks.reporting.tracking import finish_run

    finish_run(load_run(run_id, Home.find()))
