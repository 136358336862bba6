"""The button on the page of a flow run whose process no worker watches."""

import subprocess
import sys

import psutil
import pytest

from infra.process import stop_tree, wait_until
from infra.services import crashes
from infra.services.prefect_api import PrefectApi
from tests.support.nights import Nights, owner

FLOW = """
import time
from prefect import flow
from flows.ownership import claim

@flow(flow_run_name="by hand", on_running=[claim])
def by_hand():
    time.sleep(600)

by_hand()
"""


@pytest.mark.slow
@pytest.mark.services
def test_a_cancelled_flow_run_that_a_person_started_ends_with_its_process(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = PrefectApi(nights.url)
    process = subprocess.Popen([sys.executable, "-c", FLOW])  # this process's environment names the server
    try:
        wait_until(lambda: bool(claimed(api, process.pid)), 90, "the flow run")
        (mine,) = claimed(api, process.pid)
        nights.cancel(mine)
        crashes.end_cancelled(api)
        assert psutil.pid_exists(process.pid)  # whoever started it has some time
        monkeypatch.setattr(crashes, "_GRACE_S", 0)
        crashes.end_cancelled(api)
        process.wait(timeout=30)
        monkeypatch.setattr(crashes, "_CANCELLATION_S", 0)
        crashes.mark_crashed(api, nights=False)
        assert nights.state(mine) in ("Cancelled", "Crashed")
    finally:
        stop_tree(process.pid)


def claimed(api: PrefectApi, pid: int) -> list[str]:
    return [run.id for run in api.unfinished_flow_runs() if owner(run.model_dump()) == pid]
