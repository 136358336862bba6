"""What is done on the engines' machines is done once on each, and its failures are told as they are."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray

from infra.engines.client import EngineTimeout
from infra.store.base import StoreError
from tasks.fleet.actors import named_actor
from tasks.fleet.engines import Fleet
from tasks.record.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.services]


class Idle:
    """In place of an engine's actor."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray cluster of this machine."""
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    yield
    ray.shutdown()


@pytest.fixture
def two(cluster: None, run: Run, revised: Callable[..., Run]) -> Run:
    """A run with two engines, both on this machine."""
    two = revised(run, engine={"count": 2}, publish={"timeout_s": 30})
    for name in ("engine-0", "engine-1"):
        ray.get(named_actor(two, name, Idle).__ray_ready__.remote(), timeout=60)
    return two


def note(folder: Path) -> int:
    """Leave a trace; how many there are then."""
    (folder / str(time.time_ns())).touch()
    return len(list(folder.iterdir()))


def refuse() -> None:
    raise StoreError("publish.transport.mirror is full: set it to another folder")


def dawdle() -> None:
    time.sleep(20)


def test_two_engines_of_a_machine_are_one_machine(two: Run, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    assert Fleet(two).on_machines(note, tmp_path / "traces") == [1]


def test_a_failure_keeps_its_type_and_its_line(two: Run) -> None:
    with pytest.raises(StoreError) as told:
        Fleet(two).on_machines(refuse)
    assert str(told.value) == "publish.transport.mirror is full: set it to another folder"


def test_a_machine_that_takes_too_long_is_a_timeout(two: Run, revised: Callable[..., Run]) -> None:
    hurried = revised(two, publish={"timeout_s": 1})
    with pytest.raises(EngineTimeout, match=r"publish\.timeout_s 1 s: raise it"):
        Fleet(hurried).on_machines(dawdle)
