import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from infra.detached import spawn_detached
from infra.identity import ProcessRef
from infra.process import stop_tree, wait_until

SLEEP = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"]


@pytest.fixture
def sleeper(tmp_path: Path):
    process = spawn_detached(SLEEP, dict(os.environ), tmp_path / "logs" / "sleeper.log")
    yield process
    stop_tree(process.pid)


def test_is_outside_the_callers_tree_session_and_output(sleeper: ProcessRef, tmp_path: Path) -> None:
    family = {child.pid for child in psutil.Process().children(recursive=True)}
    assert sleeper.alive
    assert sleeper.pid not in family
    assert os.getsid(sleeper.pid) != os.getsid(0)
    log = tmp_path / "logs" / "sleeper.log"
    wait_until(lambda: log.read_text() == "up\n", 10, "the sleeper's output")


def test_gives_way_to_other_work(sleeper: ProcessRef) -> None:
    assert psutil.Process(sleeper.pid).nice() > psutil.Process().nice()


def test_a_recycled_pid_is_not_the_same_process(sleeper: ProcessRef) -> None:
    earlier = ProcessRef(pid=sleeper.pid, created=sleeper.created - 100)
    assert sleeper.alive
    assert not earlier.alive


def test_a_killed_process_is_not_alive(sleeper: ProcessRef) -> None:
    psutil.Process(sleeper.pid).kill()
    wait_until(lambda: not sleeper.alive, 5, "the sleeper's death")


def test_a_zombie_is_not_alive() -> None:
    child = psutil.Popen(["true"])
    process = ProcessRef.of(child.pid)
    wait_until(lambda: not process.alive, 5, "the child's death")
    assert psutil.pid_exists(child.pid)
    child.wait()


def test_heeds_an_interrupt(sleeper: ProcessRef) -> None:
    psutil.Process(sleeper.pid).send_signal(signal.SIGINT)
    wait_until(lambda: not sleeper.alive, 5, "the sleeper's end")
