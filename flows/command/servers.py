"""Start, stop and find the Prefect and MLflow servers."""

import shlex
from dataclasses import asdict
from typing import Annotated

import typer

from flows.command.options import Json
from flows.command.output import console, print_json, print_rows, progress_console
from infra.home import Home

app = typer.Typer()


@app.command()
def up(
    prefect_port: Annotated[int | None, typer.Option(help="Port of the Prefect server.")] = None,
    mlflow_port: Annotated[int | None, typer.Option(help="Port of the MLflow UI.")] = None,
    as_json: Json = False,
) -> None:
    """Start the Prefect server, its worker and the MLflow UI, or find them again.

    Your own servers are used where PREFECT_API_URL, your Prefect profile or MLFLOW_TRACKING_URI name them.
    """
    from infra.services import Services

    services = Services(Home.find())
    services.check(prefect_port, mlflow_port)
    services.ensure_prefect(prefect_port)
    services.ensure_mlflow(mlflow_port)
    services.ensure_worker()
    _print_status("up", as_json)


@app.command()
def down(
    force: Annotated[bool, typer.Option("--force", help="End the runs that are going first.")] = False,
    as_json: Json = False,
) -> None:
    """Stop the servers that `up`, `run` and `deploy` started, never your own; runs and records stay.

    While a run is going it is refused, unless by --force, which ends that run as Ctrl-C would.
    """
    from flows.stopping import stop_runs
    from infra.services import Services

    home = Home.find()
    stop_runs(home, progress_console(as_json), force)
    Services(home).stop_all()
    if as_json:
        _print_status("down", as_json)


@app.command()
def status(as_json: Json = False) -> None:
    """Say which servers are up, where, and how `prefect` and `mlflow` commands reach them."""
    _print_status("status", as_json)


def _print_status(subcommand: str, as_json: bool) -> None:
    from infra.services import Services

    found = Services(Home.find()).status()
    environment = {name: value for service in found for name, value in service.environment.items()}
    if as_json:
        from flows.command.documents import Servers

        print_json(subcommand, Servers(services=found, environment=environment))
        return
    rows = [asdict(service) for service in found]
    print_rows([{name: value for name, value in row.items() if name != "environment"} for row in rows])
    for name, value in environment.items():
        console.print(f"export {name}={shlex.quote(value)}")
