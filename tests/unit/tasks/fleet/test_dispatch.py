"""Requests keep their order and their company, whichever engines answer."""

import logging
import threading

import pytest

from infra.engines.client import (
    UNSTAMPED,
    EngineClient,
    EngineRefused,
    EngineTimeout,
    EngineUnreachable,
    Generation,
    SamplingParams,
    Span,
)
from infra.engines.router import RouterClient
from tasks.fleet.dispatch import Request, dispatch, sampling_seed

REQUESTS = [Request([number], SamplingParams(sampling_seed=number)) for number in range(10)]


class ScriptedEngine(EngineClient):
    """Echoes prompts as outputs until its call number `fails_at`, then raises."""

    def __init__(self, fails_at=None, error=EngineUnreachable):
        self.fails_at, self.error = fails_at, error
        self.calls = []
        self.stamps = []
        self.running = threading.Lock()

    def generate(self, prompts, params, *_, **__):
        with self.running:
            self.calls.append([tuple(prompt) for prompt in prompts])
            if self.fails_at is not None and len(self.calls) > self.fails_at:
                raise self.error("scripted")
            assert [p.sampling_seed for p in params] == [prompt[0] for prompt in prompts]
            return [Generation(tuple(prompt), (0.0,), (Span(1, 0, 1),), "stop") for prompt in prompts]

    def stamp(self, version):
        self.stamps.append(version)


def outputs(generations):
    return [generation.tokens[0] for generation in generations]


def test_calls_take_turns_over_engines_and_keep_their_order():
    first, second = ScriptedEngine(), ScriptedEngine()
    assert outputs(dispatch([first, second], REQUESTS, per_call=3)) == list(range(10))
    assert first.calls == [[(0,), (1,), (2,)], [(6,), (7,), (8,)]]
    assert second.calls == [[(3,), (4,), (5,)], [(9,)]]


def test_engines_work_side_by_side():
    """Each waits for the other within its call, so one after the other would never end."""
    meeting = threading.Barrier(2, timeout=20)

    class Meeting(ScriptedEngine):
        def generate(self, prompts, params, *_, **__):
            meeting.wait()
            return super().generate(prompts, params)

    assert outputs(dispatch([Meeting(), Meeting()], REQUESTS, per_call=5)) == list(range(10))


@pytest.mark.parametrize("error", [EngineUnreachable, EngineTimeout])
@pytest.mark.parametrize("fails_at", [0, 1])
def test_what_an_engine_leaves_unanswered_is_redone_with_the_same_composition(error, fails_at, caplog):
    failing, surviving = ScriptedEngine(fails_at, error), ScriptedEngine()
    with caplog.at_level(logging.WARNING):
        assert outputs(dispatch([failing, surviving], REQUESTS, per_call=3)) == list(range(10))
    assert len(failing.calls) == fails_at + 1, "the fault did not strike"
    assert "redone" in caplog.text
    assert failing.stamps == ([UNSTAMPED] if error is EngineTimeout else [])
    composed = [[(n,) for n in range(start, min(start + 3, 10))] for start in range(0, 10, 3)]
    answered = failing.calls[:fails_at] + surviving.calls
    assert sorted(answered) == composed


def test_the_last_failure_is_raised_when_no_engine_is_left():
    engines = [ScriptedEngine(0), ScriptedEngine(1, EngineTimeout)]
    with pytest.raises(EngineTimeout):
        dispatch(engines, REQUESTS, per_call=3)
    assert len(engines[1].calls) == 2
    with pytest.raises(EngineUnreachable, match="no engine"):
        dispatch([], REQUESTS, per_call=3)


def test_a_refusal_is_not_redone_elsewhere():
    refusing, other = ScriptedEngine(0, EngineRefused), ScriptedEngine()
    with pytest.raises(EngineRefused):
        dispatch([refusing, other], REQUESTS, per_call=5)
    assert len(other.calls) <= 1


def test_a_router_gets_all_requests_at_once():
    class EchoingRouter(RouterClient):
        def __init__(self):
            self.engine = ScriptedEngine()

        def generate(self, prompts, params):
            return self.engine.generate(prompts, params)

    router = EchoingRouter()
    assert outputs(dispatch(router, REQUESTS, per_call=3)) == list(range(10))
    assert router.engine.calls == [[(number,) for number in range(10)]]


def test_seeds_are_stable_distinct_and_fit_in_an_int32():
    assert sampling_seed("rollout", 0, 1, 2, 3) == 1090197375
    seeds = {sampling_seed("rollout", 0, step, prompt, 0) for step in range(20) for prompt in range(50)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**31 for seed in seeds)
