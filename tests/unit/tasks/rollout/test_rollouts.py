"""A step's batch is of the problems from the cursor on, and says where the next one begins."""

import time
from collections.abc import Callable, Iterator

import pytest

from infra.engines.client import EngineClient
from tasks.fleet.engines import Fleet
from tasks.problems import build_source
from tasks.record.batches import read_batch
from tasks.record.run import Run
from tasks.record.samples import Problem
from tasks.rollout import rollouts
from tasks.rollout.rollouts import Rollouts, rollouts_of
from tests.support.engines import tiny_engine

VERSION, PROMPTS = 7, 3

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineClient]:
    with tiny_engine(tmp_path_factory.mktemp("engine"), VERSION) as client:
        yield client


@pytest.fixture
def served(
    modelled_run: Run,
    revised: Callable[..., Run],
    engine: EngineClient,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """A run of three prompts a step, with an engine up."""
    monkeypatch.setattr(rollouts, "servers_of", lambda fleet, version: [engine])
    fields = {"prompts_per_step": PROMPTS, "samples_per_prompt": 2, "max_new_tokens": 4}
    return revised(modelled_run, rollout=fields)


def problems_from(run: Run, cursor: int) -> list[Problem]:
    return build_source(run.config).training(run.config.seed, cursor, PROMPTS)


def problems_of(run: Run, made: Rollouts) -> list[Problem]:
    return [group.problem for group in read_batch(run.store, made.ref).groups]


def test_a_batch_is_of_the_problems_from_the_cursor_on(served: Run) -> None:
    before = time.time()
    made = rollouts_of(Fleet(served), step=5, version=VERSION, cursor=4)
    assert problems_of(served, made) == problems_from(served, 4)  # and not those from (5 - 1) * 3 on
    assert (made.ref.step, made.version, made.cursor) == (5, VERSION, 4 + PROMPTS)
    assert made.interval is not None
    assert before <= made.interval.start < made.interval.end <= time.time()


def test_the_next_batch_goes_on_where_the_one_in_flight_ends(served: Run) -> None:
    first = rollouts_of(Fleet(served), 1, VERSION, cursor=0)
    ahead = rollouts_of(Fleet(served), 2, VERSION, first.cursor)  # nothing is committed meanwhile
    both = problems_of(served, first) + problems_of(served, ahead)
    assert both == build_source(served.config).training(served.config.seed, 0, 2 * PROMPTS)
    assert ahead.cursor == 2 * PROMPTS


def test_a_batch_that_is_stored_is_found_with_the_same_end(
    served: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rollouts_of(Fleet(served), 1, VERSION, cursor=4)
    monkeypatch.setattr(rollouts, "servers_of", lambda *_: pytest.fail("the engines were asked again"))
    found = rollouts_of(Fleet(served), 1, VERSION, cursor=4)
    assert (found.ref, found.cursor, found.interval) == (made.ref, made.cursor, None)
