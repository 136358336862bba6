"""The real router before two real engines: even load, and no prompt lost to an engine that dies or hangs."""

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from configs.cluster import LocalClusterConfig
from infra.engines.client import EngineClient, EngineRefused, EngineUnreachable, Generation, SamplingParams
from infra.engines.router import RouterActor, RouterClient
from infra.home import Home
from infra.process import wait_until
from tests.support.chaos import server_at
from tests.support.engines import TINY_MODEL, ServedFolder, tiny_engine

pytestmark = pytest.mark.slow
REQUEST_TIMEOUT_S = 4.0
CONCURRENCY = 8


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineClient]:
    """An engine that nothing happens to, stamped 1."""
    with tiny_engine(tmp_path_factory.mktemp("steady"), 1) as client:
        yield client


@pytest.fixture
def other(tmp_path: Path) -> Iterator[EngineClient]:
    """Another of the same weights, stamped 0 to tell its outputs apart; not the next test's."""
    with tiny_engine(tmp_path, 0) as client:
        yield client


@pytest.fixture
def router(tmp_path: Path) -> Iterator[RouterClient]:
    """A router without engines."""
    local = LocalClusterConfig().build(Home(tmp_path))
    actor = RouterActor(60, REQUEST_TIMEOUT_S, tmp_path / "router.log", local)
    client = RouterClient(actor.start(), timeout_s=60, concurrency=CONCURRENCY)
    assert actor.start() == client.url, "a live router is kept"
    yield client
    client.close()
    actor.stop()
    assert not actor.url()


def prompts(count: int) -> tuple[list[list[int]], list[SamplingParams]]:
    params = [
        SamplingParams(max_new_tokens=16, ignore_eos=True, sampling_seed=number, temperature=2.0)
        for number in range(count)
    ]
    return [[5, 6, 7 + number % 20] for number in range(count)], params


def contents(outputs: list[Generation]) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    return [(output.tokens, output.logprobs) for output in outputs]


def alone(engine: EngineClient, count: int) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """What the engine itself gives to the same prompts, one by one."""
    each = zip(*prompts(count), strict=True)
    return contents([engine.generate([prompt], [params])[0] for prompt, params in each])


def by_engine(outputs: list[Generation]) -> Counter[int]:
    return Counter(span.version for output in outputs for span in output.spans)


def test_exactly_the_engines_that_are_to_serve_get_prompts_evenly(
    router: RouterClient, steady: EngineClient, other: EngineClient
) -> None:
    expected = alone(steady, 16)
    with pytest.raises(EngineUnreachable):
        router.generate(*prompts(1))
    for engines, share in [([other], {0: 16}), ([other, steady], {0: 8, 1: 8}), ([steady], {1: 16})]:
        router.serve([engine.url for engine in engines])
        outputs = router.generate(*prompts(16))
        assert by_engine(outputs) == share
        assert contents(outputs) == expected, "a sample depends on its company"
    with pytest.raises(EngineRefused, match="context length"):
        router.generate([[5] * 500], [SamplingParams()])
    router.serve([])
    with pytest.raises(EngineUnreachable):
        router.generate(*prompts(1))


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_no_prompt_is_lost_to_an_engine_that_dies_or_hangs_under_load(
    router: RouterClient, steady: EngineClient, other: EngineClient, fault: signal.Signals
) -> None:
    expected = alone(steady, 32)
    router.serve([other.url, steady.url])
    struck = server_at(other.url)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(router.generate, *prompts(32))
        wait_until(ServedFolder(other, TINY_MODEL).busy, 20, "the load", every_s=0.005)
        struck.send_signal(fault)
        outputs = answer.result(timeout=60)
    struck.kill()
    assert contents(outputs) == expected
    shares = by_engine(outputs)
    assert shares[1] > 16 > shares[0], "the fault did not strike: the load was even"
