"""Nights that cron starts, a new one every minute: how each of them ends, and that it stays so.

In the order in which they stand: what an earlier night left is what a later one finds.
"""

import time
from collections.abc import Iterator
from datetime import datetime

import psutil
import pytest
from mlflow import MlflowClient

from infra.home import Home
from infra.process import wait_until
from tasks.record.runs import load_run
from tests.support.chaos import committed_steps
from tests.support.command import CONFIGS
from tests.support.nights import Nights, kill_tree, owner, run_of
from tests.support.sleeper import deploy, overslept
from tests.support.webhook import Webhook, webhook

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(900)]

SETTINGS = ("evaluation.problems=8", "trainer.checkpoint_every=10", "night.alert_block=custom-webhook/ops")
STAYS_S = 180
"""The time after which a night that had ended well was taken for crashed."""


@pytest.fixture(scope="module")
def alerts(nights: Nights) -> Iterator[Webhook]:
    with webhook("ops") as hook:
        yield hook


def deploy_every_minute(nights: Nights, name: str, *overrides: str) -> None:
    deploy_tiny(nights, name, "* * * * *", *overrides)


def deploy_tiny(nights: Nights, name: str, cron: str, *overrides: str) -> None:
    sets = [part for override in (f"name={name}", *SETTINGS, *overrides) for part in ("--set", override)]
    nights.overnight("deploy", str(CONFIGS / "tiny-cpu.yaml"), "--cron", cron, *sets)


def wait_for_steps(nights: Nights, name: str, steps: int) -> str:
    """The training run of the night of a deployment that is running, once it has so many steps."""
    night = nights.running(name)
    wait_until(lambda: bool(run_of(nights.read(night["id"]))), 60, "the night's run")
    run_id = run_of(nights.read(night["id"]))
    wait_until(lambda: committed_steps(nights.overnight.home, run_id) > steps, 120, f"{steps} steps")
    return run_id


def test_a_night_goes_on_over_a_restart_of_the_server(nights: Nights, alerts: Webhook) -> None:
    deploy_every_minute(nights, "long", "loop.steps=90")
    night = nights.running("long")
    wait_for_steps(nights, "long", 3)
    kill_tree(nights.service("prefect"))
    time.sleep(5)
    nights.overnight("up")
    wait_until(lambda: len(nights.of("long", "CANCELLED")) >= 2, 150, "two nights that overlap")
    nights.overnight("pause", "long")
    nights.wait_for(night["id"], "Completed", "Crashed", "Failed", timeout_s=600)

    ended = nights.read(night["id"])
    assert ended["state"]["name"] == "Completed"
    assert ended["total_run_time"] > 60
    assert committed_steps(nights.overnight.home, run_of(ended)) == 91
    skipped = nights.of("long", "CANCELLED")
    assert {run["state"]["name"] for run in skipped} == {"Skipped"}
    assert f"the night {ended['name']} is still going" in skipped[0]["state"]["message"]
    assert ended["name"] == f"{datetime.now():%Y-%m-%d} {run_of(ended)}"
    assert {"configuration:long", "lineage:long", "model:tiny-arithmetic"} <= set(ended["tags"])
    assert alerts.messages == []


def test_a_cancelled_night_is_cancelled_killed_and_not_continued(nights: Nights) -> None:
    deploy_every_minute(nights, "short", "loop.steps=500")
    cancelled = nights.running("short")
    run_id = wait_for_steps(nights, "short", 2)
    nights.cancel(cancelled["id"])
    took = nights.wait_for(cancelled["id"], "Cancelled", "Crashed", timeout_s=60)
    print(f"Cancelled after {took:.0f} s")
    assert nights.state(cancelled["id"]) == "Cancelled"
    client = MlflowClient(Home(nights.overnight.home).mlflow_uri)
    experiment = client.get_experiment_by_name("short")
    assert [run.info.status for run in client.search_runs([experiment.experiment_id])] == ["KILLED"]

    assert wait_for_steps(nights, "short", 1) != run_id


def test_a_killed_night_is_crashed_and_told_once(nights: Nights, alerts: Webhook) -> None:
    killed = nights.running("short")
    run_id = run_of(killed)
    psutil.Process(owner(killed)).kill()
    took = nights.wait_for(killed["id"], "Crashed", timeout_s=120)
    print(f"Crashed after {took:.0f} s")
    wait_until(lambda: bool(alerts.about(run_id)), 60, "the alert")
    (message,) = alerts.about(run_id)
    assert "crashed" in message["subject"]
    assert f"/runs/flow-run/{killed['id']}" in message["body"]


def test_a_worker_killed_before_its_night_began_holds_up_none(nights: Nights) -> None:
    pending: list[str] = []

    def taken() -> bool:
        pending[:] = [run["id"] for run in nights.of("short", "PENDING")]
        return bool(pending)

    worker = nights.service("worker")
    for run in nights.of("short", "RUNNING"):  # the next night, where the alert took its time
        nights.cancel(run["id"])
    wait_until(taken, 200, "a night that the worker took", every_s=0.05)
    kill_tree(worker)
    assert nights.read(pending[0])["state"]["type"] == "PENDING"
    nights.overnight("up")
    took = nights.wait_for(pending[0], "Crashed", timeout_s=150)
    print(f"Crashed after {took:.0f} s")
    wait_for_steps(nights, "short", 0)


def test_a_night_of_an_undeployed_configuration_goes_on_and_can_be_cancelled(nights: Nights) -> None:
    going = nights.running("short")
    run_id = wait_for_steps(nights, "short", 1)
    nights.overnight("undeploy", "short")
    assert "short" not in {each["name"] for each in nights.overnight.json("deployments")}
    before = committed_steps(nights.overnight.home, run_id)
    wait_until(lambda: committed_steps(nights.overnight.home, run_id) > before, 60, "a further step")
    nights.cancel(going["id"])
    nights.wait_for(going["id"], "Cancelled", timeout_s=60)
    assert load_run(run_id, Home(nights.overnight.home)).state == "abandoned"


def test_a_gate_that_stops_a_triggered_night_is_told_once(nights: Nights, alerts: Webhook) -> None:
    deploy_tiny(nights, "gated", "0 0 1 1 *", "loop.steps=3", "gates.max_logprob_diff=1e-12")
    stopped = nights.overnight.json("trigger", "gated")["flow_run_id"]
    nights.wait_for(stopped, "Failed", "Crashed", timeout_s=240)
    assert nights.state(stopped) == "Failed"
    run_id = run_of(nights.read(stopped))
    assert nights.read(stopped)["name"] == f"{datetime.now():%Y-%m-%d} {run_id}"
    (message,) = alerts.about(run_id)
    assert "failed" in message["subject"]
    assert "max_logprob_diff" in message["body"]


def test_a_night_killed_with_its_worker_is_told_by_the_next_one(nights: Nights, alerts: Webhook) -> None:
    deploy_tiny(nights, "lost", "0 0 1 1 *", "loop.steps=500")
    nights.overnight("trigger", "lost")
    run_id = wait_for_steps(nights, "lost", 1)
    killed = nights.running("lost")
    process = psutil.Process(owner(killed))
    kill_tree(nights.service("worker"))
    assert not process.is_running()
    nights.overnight("up")
    nights.wait_for(killed["id"], "Crashed", timeout_s=120)
    wait_until(lambda: bool(alerts.about(run_id)), 60, "the alert")
    (message,) = alerts.about(run_id)
    assert "crashed" in message["subject"]


def test_a_night_that_takes_too_long_is_failed(nights: Nights) -> None:
    deploy(overslept, "overslept", cron="* * * * *", night={})
    wait_until(lambda: bool(nights.of("overslept", "FAILED", "CRASHED")), 150, "the end of the night")
    assert nights.of("overslept", "FAILED", "CRASHED")[0]["state"]["name"] == "TimedOut"


def test_a_night_that_ended_well_stays_so(nights: Nights) -> None:
    (night,) = nights.of("long", "COMPLETED", "CRASHED")
    since = datetime.fromisoformat(night["end_time"]).timestamp()
    time.sleep(max(0, since + STAYS_S + 15 - time.time()))
    assert nights.state(night["id"]) == "Completed"
