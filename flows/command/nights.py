"""Have a configuration run every night."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from configs.loading import load_config
from flows.command.options import ConfigPath, Json, Overrides
from flows.command.output import console, print_json, print_rows
from infra.home import Home

app = typer.Typer()

DeploymentName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a deployed configuration, as its `name` says.")
]


@app.command()
def deploy(
    config: ConfigPath,
    cron: Annotated[str, typer.Option(help="When to run, as a cron line.")] = "0 1 * * *",
    timezone: Annotated[str, typer.Option(help="Time zone of the cron line.")] = "UTC",
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Schedule the config every night; the deployment's parameters are a form in the Prefect UI."""
    wanted = load_config(config, overrides)  # a mistake is told before Prefect is imported
    from flows.deployment import deploy as deploy_flow
    from tasks.cluster.preflight import preflight

    home = Home.find()
    preflight(wanted, home)
    deployed = deploy_flow(wanted, cron, timezone, home)
    if as_json:
        row = {"name": wanted.name, "cron": cron, "timezone": timezone, "paused": deployed.paused}
        print_json("deploy", row)
        return
    still = f" and still paused: `overnight unpause {wanted.name}`" if deployed.paused else ""
    console.print(f'deployed {deployed.name} at "{cron}" {timezone}{still}')
    console.print(f"remove it with `overnight undeploy {wanted.name}`")


@app.command(name="deployments")
def list_deployments(as_json: Json = False) -> None:
    """List what is deployed: its schedule, its next night and how the last one stands."""
    from flows.deployments import deployments

    found = deployments(Home.find())
    if as_json:
        print_json("deployments", found)
    else:
        print_rows([asdict(each) for each in found])


@app.command()
def pause(name: DeploymentName, as_json: Json = False) -> None:
    """Switch a deployment's schedule off; a night that is going goes on."""
    _set_paused(name, True, as_json)


@app.command()
def unpause(name: DeploymentName, as_json: Json = False) -> None:
    """Switch a deployment's schedule on again."""
    _set_paused(name, False, as_json)


@app.command()
def undeploy(name: DeploymentName, as_json: Json = False) -> None:
    """Remove a deployment; its runs and records stay, and a night that is going goes on."""
    from flows import deployments

    deployments.undeploy(name, Home.find())
    _print("undeploy", {"name": name, "deployed": False}, f"{name} is no longer deployed", as_json)


@app.command()
def trigger(name: DeploymentName, as_json: Json = False) -> None:
    """Have a night take place now; while another is going, it waits or does as `night.overlap` says."""
    from flows import deployments

    flow_run = deployments.trigger(name, Home.find())
    row = {"name": name, "flow_run": flow_run.name, "flow_run_id": str(flow_run.id)}
    _print("trigger", row, f"{name}: flow run {flow_run.name} is due now", as_json)


def _set_paused(name: str, paused: bool, as_json: bool) -> None:
    from flows import deployments

    deployments.set_paused(name, paused, Home.find())
    subcommand, word = ("pause", "paused") if paused else ("unpause", "scheduled")
    _print(subcommand, {"name": name, "paused": paused}, f"{name} is {word}", as_json)


def _print(subcommand: str, row: Mapping[str, object], line: str, as_json: bool) -> None:
    if as_json:
        print_json(subcommand, row)
    else:
        console.print(line)
