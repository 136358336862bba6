"""Ctrl-C, SIGTERM and SIGHUP at moments of a run that nobody chose, with and without `overnight down`."""

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest
from mlflow import MlflowClient

from infra.home import Home
from infra.services.prefect_api import PrefectApi
from tests.support.chaos import committed_steps, wait_for_commits
from tests.support.command import Overnight, overnight_in
from tests.support.interrupts import SERVERS, Sitting, services_up, wait_until_nothing_is_left
from tests.support.nights import Nights

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(7200)]

MOMENTS = int(os.environ.get("OVERNIGHT_INTERRUPTS", "3"))
"""How many times Ctrl-C comes; `make soak-interrupts` has it come 20 times."""
LONGEST_S = 20
"""What the end of a command may take."""
SETTINGS = ("loop.steps=300", "evaluation.problems=8", "trainer.checkpoint_every=5")


@pytest.fixture(scope="module")
def overnight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """A state folder of this file's own, since its servers are stopped."""
    with overnight_in(tmp_path_factory.mktemp("interrupts")) as overnight:
        yield overnight


@pytest.fixture(scope="module")
def rng() -> random.Random:
    seed = int(os.environ.get("OVERNIGHT_SEED", random.randrange(10_000)))
    print(f"random seed {seed}")
    return random.Random(seed)


def nights_of(overnight: Overnight) -> Nights:
    rows = overnight.json("status")["services"]
    return Nights(overnight, next(row["url"] for row in rows if row["name"] == "prefect"))


def unfinished(overnight: Overnight) -> list[str]:
    return [run.name for run in PrefectApi(nights_of(overnight).url).unfinished_flow_runs()]


def states(overnight: Overnight) -> list[str]:
    """Of all flow runs that are no part of another."""
    outermost = {"flow_runs": {"parent_task_run_id": {"is_null_": True}}, "sort": "START_TIME_DESC"}
    rows = nights_of(overnight)._post("/flow_runs/filter", outermost)
    return [row["state"]["type"] for row in rows]


def mlflow_status(overnight: Overnight, name: str = "tiny-cpu") -> list[str]:
    if not (Home(overnight.home).mlflow / "mlflow.db").exists():
        return []
    client = MlflowClient(Home(overnight.home).mlflow_uri)
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return []
    return [run.info.status for run in client.search_runs([experiment.experiment_id])]


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_ctrl_c_ends_a_run_and_nothing_of_it_goes_on(
    overnight: Overnight, rng: random.Random, moment: int
) -> None:
    """From its first second on, into its steps; `down` comes with every other, while it winds down."""
    with_down, group = moment % 2 == 1, moment % 4 < 2
    run_id = f"stopped-{moment // 4}"  # begun, and then gone on with
    delay = rng.uniform(1, 60)
    sitting = Sitting.run(overnight, run_id, *SETTINGS)
    time.sleep(delay)
    before = services_up(overnight)
    assert sitting.process.poll() is None, sitting.process.communicate()
    since = time.monotonic()
    sitting.signal(signal.SIGINT, group)
    down = overnight.start("down") if with_down else None
    ended = sitting.end(since)
    left = wait_until_nothing_is_left(overnight)
    print(
        f"\nCtrl-C after {delay:.0f} s at {committed_steps(overnight.home, run_id)} commits, "
        f"to {'group' if group else 'process'}, down {with_down}: code {ended.exit_code} in "
        f"{ended.seconds:.1f} s, nothing left {left:.1f} s later"
    )
    assert ended.exit_code == 130, ended.output
    assert ended.seconds < LONGEST_S
    if f"overnight resume {run_id}" not in ended.output:
        assert "run " not in ended.output, ended.output  # the run was not yet begun
    assert "Traceback" not in ended.output and "Error" not in ended.output, ended.output
    if down is not None:
        _, err = down.communicate(timeout=60)
        assert down.returncode == 0, err
        time.sleep(3)
        assert services_up(overnight) == {}
        return
    after = services_up(overnight)
    assert {name: after.get(name) for name in SERVERS if name in before} == {
        name: before[name] for name in SERVERS if name in before
    }
    if "prefect" in after:
        assert unfinished(overnight) == []
    assert "RUNNING" not in mlflow_status(overnight)


@pytest.mark.parametrize(
    ("number", "group", "commits"),
    [(signal.SIGTERM, False, 0), (signal.SIGTERM, True, 3), (signal.SIGHUP, False, 2)],
)
def test_a_signal_of_an_operator_ends_a_run_in_order(
    overnight: Overnight, number: signal.Signals, group: bool, commits: int
) -> None:
    overnight("up")
    run_id = f"{number.name.lower()}-{commits}"
    sitting = Sitting.run(overnight, run_id, *SETTINGS)
    if commits:
        wait_for_commits(overnight, sitting.process, run_id, commits)
    else:
        time.sleep(25)
    since = time.monotonic()
    sitting.signal(number, group)
    ended = sitting.end(since)
    left = wait_until_nothing_is_left(overnight)
    print(f"\n{number.name} at {commits} commits: {ended.seconds:.1f} s, nothing left {left:.1f} s later")
    assert ended.exit_code == 128 + number, ended.output
    assert ended.seconds < LONGEST_S
    assert "received at time" not in ended.output, "Ray's native stack trace"
    assert ended.output.splitlines()[-1] == f"interrupted: continue with `overnight resume {run_id}`"
    assert unfinished(overnight) == []
    if commits:
        assert "CRASHED" in states(overnight)
        assert "RUNNING" not in mlflow_status(overnight)


def test_down_names_the_run_that_is_going_and_ends_it_by_force(overnight: Overnight) -> None:
    sitting = Sitting.run(overnight, "going", *SETTINGS)
    wait_for_commits(overnight, sitting.process, "going", 3)
    refused = overnight("down", exit_code=2)
    assert f"going (process {sitting.process.pid})" in refused.stderr
    assert "overnight down --force" in refused.stderr
    told = states(overnight)
    busy = overnight("resume", "going", exit_code=2)
    assert busy.stderr.splitlines() == [
        f"error: run going is being worked on by process {sitting.process.pid}: wait for it"
    ]
    assert states(overnight) == told, "a flow run was made for the refused command"
    since = time.monotonic()
    forced = overnight("down", "--force")
    assert "ending run going: continue with `overnight resume going`" in forced.stdout
    assert sitting.end(since).exit_code == 143
    wait_until_nothing_is_left(overnight)
    assert services_up(overnight) == {}
    overnight("up")
    assert unfinished(overnight) == []
    assert "RUNNING" not in mlflow_status(overnight)


def test_a_second_ctrl_c_hastens_the_end(overnight: Overnight) -> None:
    sitting = Sitting.run(overnight, "hastened", *SETTINGS)
    wait_for_commits(overnight, sitting.process, "hastened", 2)
    since = time.monotonic()
    sitting.signal(signal.SIGINT, group=True)
    time.sleep(0.3)
    sitting.signal(signal.SIGINT, group=True)
    ended = sitting.end(since)
    print(f"\ntwo Ctrl-C: {ended.seconds:.1f} s")
    assert ended.exit_code == 130 and ended.seconds < 6
    wait_until_nothing_is_left(overnight)
