"""One sitting at the command line: servers up, a flow run in this process, links printed at the end."""

import os
from pathlib import Path

from rich.console import Console

from configs.run import RunConfig
from infra.home import Home
from infra.services import Services, client_environment
from tasks.run import Run


def train(run: Run, console: Console, as_json: bool) -> None:
    """Work on a run until it has its steps, showing its progress, and print its report."""
    services = _services(Home(run.home))
    from flows.display import RunDisplay, print_report
    from flows.nightly import nightly_rl
    from infra.services import mark_crashed

    mark_crashed(f"run:{run.id}")
    console.print(f"run {run.id}: Prefect {services.prefect_url}, MLflow {services.mlflow_url} (starting)")
    try:
        with RunDisplay(run, console):
            report = nightly_rl(run.config, run.id)
    except KeyboardInterrupt:
        console.print(f"interrupted: continue with `overnight resume {run.id}`")
        raise SystemExit(130) from None
    if as_json:
        print(report.model_dump_json(indent=1))
        return
    print_report(report, console)
    console.print(
        f"Prefect UI {services.prefect_url}   MLflow UI {services.mlflow_url}   stop both: overnight down\n"
        f"weight versions: overnight ledger {run.id}"
    )
