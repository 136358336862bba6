"""Have a configuration run every night."""

from typing import Annotated

import typer

from configs.loading import load_config
from flows.command.options import ConfigPath, Overrides
from flows.command.output import console
from infra.home import Home

app = typer.Typer()


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
