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
def down() -> None:
    """Stop the servers that `up`, `run` and `deploy` started, never your own; runs and records stay."""
    from infra.services import Services

    Services(Home.find()).stop_all()


@app.command()
def status(as_json: Json = False) -> None:
    """Say which servers are up, where, and how `prefect` and `mlflow` commands reach them."""
    from infra.services import Services

    found = [asdict(service) for service in Services(Home.find()).status()]
    rows = [{name: value for name, value in row.items() if name != "environment"} for row in found]
    print_rows(found, rows, as_json)
    if not as_json:
        for row in found:
            for name, value in row["environment"].items():
                console.print(f"export {name}={shlex.quote(value)}")
