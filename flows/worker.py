"""The worker that starts scheduled runs as processes: `python -m flows.worker`.

Prefect's own process worker, which asks before each start whose turn it is (`turns.py`) and whether every
night that is said to be going has a process (`crashes.py`). What is due and going is read from the server
each time, so that worker and server may be restarted at any moment. Of a night whose process is gone nobody
calls the hooks, so the worker does.
"""

import asyncio
import os
import socket
import warnings
from typing import TYPE_CHECKING
from uuid import UUID

import anyio.to_thread
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Cancelled, Cancelling
from prefect.workers.process import ProcessWorker

from configs.errors import OvernightError
from infra.home import Home
from infra.services import Services
from infra.services.programs import WORK_POOL
from infra.services.turns import Night, Turns, take_turns

if TYPE_CHECKING:
    from prefect.client.schemas.responses import WorkerFlowRunResponse

warnings.filterwarnings("ignore", message="Type 'NightWorker'")  # it takes the place of Prefect's own
_GOING = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


class NightWorker(ProcessWorker):
    """A process worker that has nights take turns."""

    async def _get_scheduled_flow_runs(self) -> "list[WorkerFlowRunResponse]":
        """Those due that may start now: one, or none."""
        await self._tend_flow_runs()
        due = await super()._get_scheduled_flow_runs()
        submitting = self._submitting_flow_run_ids
        going = {run.id: run for run in await self._going()}
        going |= {entry.flow_run.id: entry.flow_run for entry in due if entry.flow_run.id in submitting}
        turns = take_turns(
            [_night(entry.flow_run) for entry in due if entry.flow_run.id not in going],
            [_night(run) for run in going.values()],
        )
        await self._carry_out(turns, going)
        return [entry for entry in due if turns.start and entry.flow_run.id == turns.start.id]

    async def _going(self) -> list[FlowRun]:
        return await self.client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_GOING))),
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[self._work_pool_name])),
        )

    async def _carry_out(self, turns: Turns, going: dict[UUID, FlowRun]) -> None:
        for run_id, reason in turns.skip.items():
            await self.client.set_flow_run_state(
                run_id, Cancelled(name="Skipped", message=f"Skipped: {reason}.")
            )
        for run_id in turns.cancel:
            state = going[run_id].state
            if state is None or not state.is_cancelling():
                message = "Cancelled: the next night is due, and night.overlap is cancel."
                await self.client.set_flow_run_state(run_id, Cancelling(message=message))

    async def _tend_flow_runs(self) -> None:
        try:
            for run_id in await anyio.to_thread.run_sync(Services(Home.find()).tend_nights):
                await anyio.to_thread.run_sync(_call_hooks, run_id)
        except (OvernightError, TimeoutError) as error:
            self._logger.warning("%s", error)


def _call_hooks(run_id: str) -> None:
    from flows.hooks import call_hooks  # imports much, which a worker seldom needs

    call_hooks(UUID(run_id))


def _night(run: FlowRun) -> Night:
    """A flow run by its parameters: each of those that have no `night` waits for a turn of its own."""
    due = run.expected_start_time or run.created
    assert due is not None
    section = run.parameters.get("night", run.parameters.get("config", {}).get("night"))
    if section is None:
        return Night(run.id, run.name, None, due)
    return Night(run.id, run.name, run.deployment_id, due, section.get("overlap", "skip"))


def main() -> None:
    """Start nights until terminated."""

    from prefect.utilities.processutils import setup_signal_handlers_worker

    setup_signal_handlers_worker(os.getpid(), "the worker", print)
    worker = NightWorker(WORK_POOL, name=socket.gethostname(), prefetch_seconds=0)
    asyncio.run(worker.start())


if __name__ == "__main__":
    main()
