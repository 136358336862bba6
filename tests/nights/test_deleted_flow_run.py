"""A flow run that a person deletes while it is going: the run goes on in another, and says so in a line."""

from collections.abc import Iterator

import httpx
import pytest

from infra.process import wait_until
from infra.services.prefect_api import PrefectApi
from tests.support.chaos import wait_for_commits
from tests.support.command import Overnight, overnight_in
from tests.support.interrupts import Sitting

pytestmark = [pytest.mark.slow, pytest.mark.services]


@pytest.fixture
def overnight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """A state folder without other flow runs."""
    with overnight_in(tmp_path_factory.mktemp("deleted")) as overnight:
        yield overnight


def test_the_run_goes_on_in_a_new_flow_run(overnight: Overnight) -> None:
    sitting = Sitting.run(overnight, "lost", "loop.steps=24", "evaluation.problems=8")
    wait_for_commits(overnight, sitting.process, "lost", 3)
    prefect = overnight.json("status")["services"][0]["url"]
    nights = {"flows": {"name": {"any_": ["nightly-rl"]}}}
    (going,) = httpx.post(f"{prefect}/api/flow_runs/filter", json=nights, timeout=30).json()
    gone = f"{prefect}/api/flow_runs/{going['id']}"
    # the server is busy with the run, and refuses when its database is
    wait_until(lambda: httpx.delete(gone, timeout=60).status_code in (204, 404), 120, "the deletion")
    ended = sitting.end(timeout_s=300)
    assert ended.exit_code == 0, ended.output
    assert "Traceback" not in ended.output and "ERROR" not in ended.output, ended.output
    told = [line for line in ended.output.splitlines() if "Prefect lost the flow run" in line]
    assert len(told) == 1 and told[0].endswith("Going on in a new one."), ended.output
    assert "24 of 24" in ended.output
    (anew,) = httpx.post(f"{prefect}/api/flow_runs/filter", json=nights, timeout=30).json()
    assert anew["id"] != going["id"] and anew["state"]["type"] == "COMPLETED"
    assert PrefectApi(prefect).unfinished_flow_runs() == []
