"""What is asked of all engines reaches all of them."""

import threading

import pytest

from tasks.fleet.engines import Engine, on_all
from tests.support.fakes import FakeEngine

ENGINES = [Engine(f"engine-{number}", FakeEngine()) for number in range(16)]


def test_answers_come_in_the_order_of_the_engines_from_all_at_once() -> None:
    barrier = threading.Barrier(len(ENGINES))

    def name_together(engine: Engine) -> str:
        barrier.wait(timeout=10)
        return engine.name

    assert on_all(ENGINES, name_together) == [engine.name for engine in ENGINES]


def test_a_failure_keeps_no_engine_from_being_asked() -> None:
    asked: list[str] = []

    def fail_first(engine: Engine) -> None:
        asked.append(engine.name)
        if engine is ENGINES[0]:
            raise OSError("the first failed")

    with pytest.raises(OSError, match="the first failed"):
        on_all(ENGINES, fail_first)
    assert sorted(asked) == sorted(engine.name for engine in ENGINES)
