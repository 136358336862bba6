"""Start, stop and find the Prefect and MLflow servers."""

import shlex
from dataclasses import asdict
from typing import Annotated

import typer

from flows.command.options import Json
from flows.command.output import console, print_rows
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
    status(as_json)


@app.command()
def down(
    force: Annotated[bool, typer.Option("--force", help="End the runs that are going first.")] = False,
) -> None:
    """Stop the servers that `up`, `run` and `deploy` started, never your own; runs and records stay.

    While a run is going it is refused, unless by --force, which ends that run as Ctrl-C would.
    """
    from flows.stopping import stop_runs
    from infra.services import Services

    home = Home.find()
    stop_runs(home, console, force)
    Services(home).stop_all()


@app.command()
def status(as_json: Json = False) -> None:
    """Say which servers are up, where, and how `prefect` and `mlflow` commands reach them."""
    from infra.services import Services

    services = Services(Home.find())
    rows = [asdict(service) for service in services.status()]
    variables = services.variables()
    print_rows({"services": rows, "environment": variables}, rows, as_json)
    if not as_json:
        for name, value in variables.items():
            console.print(f"export {name}={shlex.quote(value)}")
