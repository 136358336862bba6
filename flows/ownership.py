"""Marking flow runs with the process that works on them, so that a crash can be told from patience."""

from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun

from infra.services import process_tag


def claim(flow: Any, flow_run: FlowRun, state: Any) -> None:
    """Hook for `on_running`: tag the flow run with this process.

    The tag is set on the flow run alone: Prefect asks its server for a concurrency slot before each task run
    that carries a tag, as those below a `prefect.tags` block do, and that takes up to two seconds.
    """
    kept = {tag for tag in flow_run.tags if not tag.startswith("process:")}
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, tags=sorted(kept | {process_tag()}))
