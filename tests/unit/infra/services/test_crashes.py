"""Which flow runs are taken for over: never those that another team's worker has on the same server."""

import time
from datetime import UTC, datetime

import pytest

from infra.services.crashes import _is_gone, process_tag
from infra.services.prefect_api import FlowRun, State

LONG_AGO = datetime.fromtimestamp(time.time() - 3600, UTC)


@pytest.mark.parametrize(("pool", "gone"), [("overnight", True), ("of-another-team", False), (None, False)])
def test_a_run_without_a_process_is_over_only_on_our_work_pool(pool: str | None, gone: bool) -> None:
    state = State(type="RUNNING", timestamp=LONG_AGO)
    run = FlowRun(id="a-run", name="night", tags=[], state=state, work_pool_name=pool)
    assert _is_gone(run) is gone
    assert not _is_gone(run.model_copy(update={"tags": [process_tag()]}))
