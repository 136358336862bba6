"""What happens when a night ends otherwise than well: people are told, and a cancelled run is closed.

Prefect calls hooks in the process of the flow or, where that was killed, in one that the worker starts; where
the worker was killed, too, the next one calls them. They go by what the server knows of the flow run, not by
what they are handed.
"""

from typing import Any
from uuid import UUID

from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.utilities.urls import url_for

from configs.errors import UserError
from flows.labels import run_id_of
from infra.home import Home
from tasks.record.abandonment import abandon_run
from tasks.record.runs import load_run
from tasks.reporting.tracking import finish_run

_LONGEST_REASON = 500
"""Characters of a state's message that an alert quotes."""


def check_alert_block(name: str | None) -> None:
    """UserError unless this names a notification block that the Prefect server has."""
    if name is not None:
        _load_block(name)


def alert(flow: Any, flow_run: FlowRun, state: State) -> None:
    """Hook for `on_failure` and `on_crashed`: one message to the block that the night names, if it does."""
    block = _night(flow_run.parameters).get("alert_block")
    if block is None:
        return
    run_id = run_id_of(_read(flow_run.id)) or "not begun"
    reason = " ".join((state.message or "").split())[:_LONGEST_REASON]
    subject = f"Overnight: {flow_run.name} {state.name.lower() if state.name else 'ended'}"
    notifier: Any = _load_block(block)  # its notify is typed as one to await, which it is in a loop only
    notifier.notify(f"run {run_id}: {reason}\n{url_for(flow_run)}", subject)


def close(flow: Any, flow_run: FlowRun, state: State) -> None:
    """Hook for `on_cancellation`: the run is abandoned, so no night continues it, and KILLED in MLflow."""
    run_id = run_id_of(_read(flow_run.id))
    if run_id is None:
        return
    run = load_run(run_id, Home.find())
    abandon_run(run)
    finish_run(run)


def call_hooks(run_id: UUID) -> None:
    """Those of a night that was ended from outside, because its process is gone."""
    flow_run = _read(run_id)
    state = flow_run.state
    if state and state.is_crashed():
        alert(None, flow_run, state)
    elif state and state.is_cancelled():
        close(None, flow_run, state)


def _read(run_id: UUID) -> FlowRun:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(run_id)


def _night(parameters: dict[str, Any]) -> dict[str, Any]:
    return parameters.get("night") or parameters.get("config", {}).get("night") or {}


def _load_block(name: str) -> NotificationBlock:
    try:
        block = Block.load(name)
    except ValueError:
        raise UserError(
            f"night.alert_block {name} is not on the Prefect server: make it in its UI under Blocks, "
            "or leave it out"
        ) from None
    if not isinstance(block, NotificationBlock):
        raise UserError(f"night.alert_block {name} does not notify: name a notification block")
    return block
