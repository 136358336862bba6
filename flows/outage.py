"""What a sitting does when Prefect is lost under it: the record is the run's store, so the work goes on."""

from collections.abc import Callable

import httpx
from prefect.exceptions import ObjectNotFound
from rich.console import Console

from infra.services import Services
from tasks.record.evaluations import is_complete
from tasks.record.run import Run
from tasks.reporting.report import RunReport, report_of

_LOST = (httpx.TransportError, httpx.HTTPStatusError, ObjectNotFound)
"""What Prefect's client raises: no server, one that cannot do what it should, a flow run that was deleted."""
_TIMES = 3
"""How often the work goes on in a new flow run."""


def outlast(run: Run, console: Console, flow: Callable[[], RunReport]) -> RunReport:
    """The run's report, by its flow, called anew when Prefect is lost, or by a record that has it all."""
    for _ in range(_TIMES):
        try:
            return flow()
        except _LOST as error:
            reason = _line(error)
            if is_complete(run):
                console.print(f"Prefect lost the flow run: {reason}. The run itself is complete.")
                return report_of(run)
            console.print(f"Prefect lost the flow run: {reason}. Going on in a new one.")
            Services(run.home).ensure_prefect()
    return flow()


def _line(error: Exception) -> str:
    """Without Prefect's advice, which is for developers; some errors carry no text at all."""
    return str(error).partition("\n")[0] if str(error) not in ("", "None") else type(error).__name__
