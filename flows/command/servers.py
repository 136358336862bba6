"""Start, stop and find the Prefect and MLflow servers."""

from dataclasses import asdict
from typing import Annotated

import typer

from flows.command.options import Json
from flows.command.output import print_rows
from infra.home import Home

app = typer.Typer()


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
    print_rows(rows, rows, as_json)
