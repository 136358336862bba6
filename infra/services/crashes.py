"""Flow runs whose process was killed: nobody told Prefect, so they would stay Running for ever.

The machine is asked, not Prefect's events, of which some are lost or late: flow runs carry the tag of the
process that works on them, and one is said to be over only when that process is provably gone and the run,
read again after that, has not ended. Every command that talks to the server does this, and the worker all the
time.
"""

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from functools import cache

import psutil

from infra.identity import ProcessRef
from infra.process import stop_tree
from infra.services.prefect_api import FlowRun, PrefectApi
from infra.services.programs import WORK_POOL

_PREFIX = "process:"
_WORKER_LABEL = "prefect.worker.name"
_FLOW_RUN_VARIABLE = "PREFECT__FLOW_RUN_ID"
"""What Prefect's worker puts into the environment of the process that it starts for a flow run."""
_HANDOVER_S = 90
"""How long a worker may take from taking a run to having a process for it."""
_GRACE_S = 60
"""How long whoever started a run's process may take to end it, once the run is to be cancelled."""
_CANCELLATION_S = 120
"""How long whoever cancels a run may take to say that it is cancelled, once its process is gone."""


@cache
def process_tag() -> str:
    """The tag `process:HOST/PID/CREATED` of this process, to be put on the flow runs that it works on."""
    me = ProcessRef.of(os.getpid())
    return f"{_PREFIX}{socket.gethostname()}/{me.pid}/{me.created:.2f}"


def mark_crashed(api: PrefectApi, nights: bool) -> list[str]:
    """End unfinished flow runs, and their task runs, if their process is gone; their ids.

    `nights` says whether those of the work pool, which its worker sees to, or the others. They become
    Crashed, or Cancelled where that was under way. Runs of another machine are left alone, and so are those
    that no worker was given and no process has claimed.
    """
    gone = [
        run.id
        for run in api.unfinished_flow_runs()
        if (run.work_pool_name == WORK_POOL) is nights and _is_gone(run)
    ]
    if not gone:
        return []
    dead = api.unfinished_flow_runs(ids=gone)  # a process tells its end before it is gone
    _end(api, dead, "The process that worked on this run is gone: it was killed or its machine went down.")
    return [run.id for run in dead]


def end_cancelled(api: PrefectApi) -> None:
    """End the processes of this machine that work on flow runs which were to be cancelled a while ago.

    Whoever started a process sees to that; one that a person started has nobody, and one whose worker was
    restarted neither.
    """
    for run in api.unfinished_flow_runs():
        owner = _owner(run)
        if run.state.type == "CANCELLING" and _age_s(run) > _GRACE_S and owner and owner.alive:
            stop_tree(owner.pid)


def crash_own(api: PrefectApi, message: str) -> None:
    """End the unfinished flow runs that this process works on, and their task runs, before it is gone."""
    _end(api, api.unfinished_flow_runs([process_tag()]), message)


def _end(api: PrefectApi, runs: Sequence[FlowRun], message: str) -> None:
    """End flow runs with their task runs, then the subflows that no process has claimed yet."""
    while runs:
        ids = [run.id for run in runs]
        for run in runs:
            api.end_flow_run(run.id, "CANCELLED" if run.state.type == "CANCELLING" else "CRASHED", message)
        for task_run in api.unfinished_task_runs(ids):
            api.end_task_run(task_run.id, "CRASHED", message)
        runs = api.unfinished_flow_runs(parent_ids=ids)


def forget_heartbeat_automations(api: PrefectApi) -> None:
    """Remove the automations that Overnight made before 0.2.0, which took runs for crashed that were not."""
    for automation in api.automations():
        if automation.name.startswith("Overnight: heartbeat"):
            api.delete_automation(automation.id)


def _is_gone(run: FlowRun) -> bool:
    """Whether no process of this machine works on the run and one should."""
    if run.state.type == "CANCELLING" and _age_s(run) < _CANCELLATION_S:
        return False
    if any(tag.startswith(_PREFIX) for tag in run.tags):
        owner = _owner(run)
        return owner is not None and not owner.alive
    return run.work_pool_name == WORK_POOL and _age_s(run) > _HANDOVER_S and _never_began(run)


def _owner(run: FlowRun) -> ProcessRef | None:
    """The process of this machine that works on the run."""
    for tag in run.tags:
        if tag.startswith(_PREFIX):
            host, pid, created = tag.removeprefix(_PREFIX).rsplit("/", 2)
            if host == socket.gethostname():
                return ProcessRef(pid=int(pid), created=float(created))
    return None


def _age_s(run: FlowRun) -> float:
    """Seconds since the run came into its state."""
    return time.time() - run.state.timestamp.timestamp()


def _never_began(run: FlowRun) -> bool:
    """Whether a run was given to the worker of this machine, which has no process for it."""
    worker = run.labels.get(_WORKER_LABEL, socket.gethostname())  # killed before it could put its name there
    return worker == socket.gethostname() and run.id not in _flow_runs_with_a_process()


def _flow_runs_with_a_process() -> set[str]:
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found.add(process.environ().get(_FLOW_RUN_VARIABLE, ""))
    return found
