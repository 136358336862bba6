"""Pause, continue, abort, and changing weights under a running request."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from infra.engines.client import EngineRefused, EngineUnreachable, SamplingParams
from infra.engines.protocol import PauseMode
from tests.support.engines import RUNNING_PROMPT, RUNNING_TEMPERATURE, ServedFolder, response_logprobs

LONG = 800

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("server", ["llama"], indirect=True)]


def test_abort_keeps_the_tokens_so_far(engine: ServedFolder) -> None:
    with engine.running(LONG, prompts=2) as request:
        time.sleep(0.2)
        engine.client.abort("running")
        outputs = request.result(timeout=10)
    for output in outputs:
        assert output.finish_reason == "abort"
        assert 0 < len(output.tokens) < LONG
        assert len(output.logprobs) == len(output.tokens)
        assert output.spans == ((0, 0, len(output.tokens)),)


def test_abort_spares_requests_of_another_id(engine: ServedFolder) -> None:
    with engine.running(300) as request:
        engine.client.abort("somebody else")
        assert request.result(timeout=30)[0].finish_reason == "length"


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_a_pause_holds_tokens_back_until_it_is_ended(engine: ServedFolder, mode: PauseMode) -> None:
    with engine.running(LONG) as undisturbed:
        expected = undisturbed.result(timeout=30)[0].tokens
    with engine.running(LONG) as request:
        engine.client.pause(mode)
        time.sleep(0.5)
        assert not request.done()
        with pytest.raises(EngineUnreachable, match="paused"):
            engine.client.probe()
        engine.client.resume()
        assert request.result(timeout=30)[0].tokens == expected


def test_a_pause_that_aborts_returns_partial_outputs_at_once(engine: ServedFolder) -> None:
    with engine.running(LONG) as request, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.client.generate, [RUNNING_PROMPT], [SamplingParams(max_new_tokens=5)])
        time.sleep(0.2)
        engine.client.pause("abort")
        assert request.result(timeout=10)[0].finish_reason == "abort"
        output = waiting.result(timeout=10)[0]
        assert (output.finish_reason, output.tokens) == ("abort", ())


def test_a_request_waits_for_the_end_of_a_pause(engine: ServedFolder) -> None:
    engine.client.pause()
    with ThreadPoolExecutor(1) as pool:
        scored = pool.submit(engine.client.score, [RUNNING_PROMPT])
        time.sleep(0.3)
        assert not scored.done()
        engine.client.resume()
        assert len(scored.result(timeout=10)[0]) == len(RUNNING_PROMPT) - 1


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_weights_changed_in_a_pause_give_two_spans(
    engine: ServedFolder, changed: Path, mode: PauseMode
) -> None:
    with engine.running(LONG) as request:
        time.sleep(0.2)
        engine.client.pause(mode)
        engine.client.update_from_disk(changed)
        engine.client.stamp(7)
        engine.client.resume()
        (output,) = request.result(timeout=30)
    before, after = output.spans
    assert (before.version, before.start, after.version, after.end) == (0, 0, 7, LONG)
    assert 0 < before.end == after.start < LONG
    drawn = torch.tensor(output.logprobs)
    old = response_logprobs(engine.folder, RUNNING_PROMPT, output, RUNNING_TEMPERATURE)
    new = response_logprobs(changed, RUNNING_PROMPT, output, RUNNING_TEMPERATURE)
    torch.testing.assert_close(drawn[: before.end], old[: before.end], atol=1e-4, rtol=0)
    assert (drawn[after.start :] - old[after.start :]).abs().max() > 0.01
    if mode == "retract":  # in place, the new weights go on from the old ones' keys and values
        torch.testing.assert_close(drawn[after.start :], new[after.start :], atol=1e-4, rtol=0)


def test_without_a_pause_an_update_waits_for_the_running_request(engine: ServedFolder, changed: Path) -> None:
    with engine.running(LONG) as request:
        engine.client.update_from_disk(changed)
        (output,) = request.result(timeout=30)
    expected = response_logprobs(engine.folder, RUNNING_PROMPT, output, RUNNING_TEMPERATURE)
    torch.testing.assert_close(torch.tensor(output.logprobs), expected, atol=1e-4, rtol=0)


def test_a_stamp_alone_splits_the_spans_of_a_running_request(engine: ServedFolder) -> None:
    with engine.running(LONG) as request:
        time.sleep(0.2)
        engine.client.stamp(1)
        assert [span.version for span in request.result(timeout=30)[0].spans] == [0, 1]
    assert engine.client.model_info().weight_version == "1"


def test_the_cache_is_not_flushed_under_a_request(engine: ServedFolder) -> None:
    with engine.running(LONG), pytest.raises(EngineRefused):
        engine.client.flush_cache()
    engine.client.abort()


def test_the_probe_sees_a_busy_engine_move(engine: ServedFolder) -> None:
    engine.client.probe()
    with engine.running(LONG) as request:
        engine.client.probe()
        assert not request.done()
