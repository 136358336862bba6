"""Flow runs whose process was killed: nobody told Prefect, so they would stay Running for ever.

On this machine the process itself is asked: flow runs carry the tag of the process that works on them, and a
run is set to Crashed only when that process is provably gone. For a flow that dies while nobody looks, two
automations on the server watch its heartbeats. The second one takes back a false alarm of the first, such as
after a laptop slept.
"""

import contextlib
import os
import socket
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from infra.identity import ProcessRef
from infra.services.environment import HEARTBEAT_S
from infra.services.prefect_api import FlowRun, PrefectApi

_PREFIX = "process:"
_SILENCE_S = 3 * HEARTBEAT_S


def process_tag() -> str:
    """The tag `process:HOST/PID/CREATED` of this process, to be put on the flow runs that it works on."""
    me = ProcessRef.of(os.getpid())
    return f"{_PREFIX}{socket.gethostname()}/{me.pid}/{me.created:.2f}"


def mark_crashed(api: PrefectApi, tags: Sequence[str] = ()) -> list[str]:
    """Set unfinished flow runs with all the tags, and their task runs, to Crashed if their process is gone.

    Returns the names of the flow runs. Runs without a process tag, or of another machine, are left alone.
    """
    dead = [run for run in api.unfinished_flow_runs(tags) if _process_is_gone(run)]
    if dead:
        message = "The process that worked on this run is gone: it was killed or its machine went down."
        for task_run in api.unfinished_task_runs([run.id for run in dead]):
            api.crash_task_run(task_run.id, message)
        for run in dead:
            api.crash_flow_run(run.id, message)
    return [run.name for run in dead]


def watch_heartbeats(api: PrefectApi) -> None:
    """Register the automations that watch heartbeats, unless they are there."""
    known = {automation.name for automation in api.automations()}
    for automation in _AUTOMATIONS:
        if automation["name"] not in known:
            api.create_automation(automation)


def forget_heartbeats(database: Path) -> None:
    """Before a server starts: drop the heartbeats that the last one waited for.

    It was not there to hear them, and Prefect would count them as missed by flows that live.
    """
    if database.exists():
        with (
            contextlib.suppress(sqlite3.OperationalError),  # no such table: the server never got so far
            closing(sqlite3.connect(database, timeout=30)) as connection,
            connection,
        ):
            connection.execute("DELETE FROM automation_bucket")


def _process_is_gone(run: FlowRun) -> bool:
    for tag in run.tags:
        if tag.startswith(_PREFIX):
            host, pid, created = tag.removeprefix(_PREFIX).rsplit("/", 2)
            return host == socket.gethostname() and not ProcessRef(pid=int(pid), created=float(created)).alive
    return False


def _automation(name: str, trigger: dict[str, Any], state: str, message: str) -> dict[str, Any]:
    return {
        "name": name,
        "trigger": {
            "type": "event",
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            **trigger,
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": state,
                "name": state.title(),
                "message": message,
                "force": True,
            }
        ],
    }


_HEARTBEAT = "prefect.flow-run.heartbeat"
_AUTOMATIONS = [
    _automation(
        "Overnight: heartbeat missed",
        {
            "posture": "Proactive",
            "after": [_HEARTBEAT],
            "expect": [_HEARTBEAT]
            + [
                f"prefect.flow-run.{end}"
                for end in ("Completed", "Failed", "Cancelled", "Crashed", "Suspended")
            ],
            "within": _SILENCE_S,
        },
        "CRASHED",
        f"No heartbeat for {_SILENCE_S} s: the process was killed or its machine is down or asleep.",
    ),
    _automation(
        "Overnight: heartbeat after a crash",
        {
            "posture": "Reactive",
            "after": ["prefect.flow-run.Crashed"],
            "expect": [_HEARTBEAT],
            "within": 2 * _SILENCE_S,
        },
        "RUNNING",
        "A heartbeat came: the process lives after all.",
    ),
]
