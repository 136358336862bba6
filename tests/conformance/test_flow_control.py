"""Pause, continue, abort, and changing weights under a running request."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from infra.engines.client import EngineRefused, EngineUnreachable, Generation
from infra.engines.protocol import PauseMode
from tests.support.engines import RUNNING_PROMPT, RUNNING_TEMPERATURE, ServedFolder, response_logprobs

LONG = 600

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("family", ["llama"], indirect=True)]


def test_abort_keeps_the_tokens_so_far(engine: ServedFolder) -> None:
    with engine.running(LONG, prompts=2) as request:
        engine.client.abort("running-1")
        whole, partial = request.result(timeout=60)
    assert (whole.finish_reason, len(whole.tokens)) == ("length", LONG)
    assert partial.finish_reason == "abort"
    assert 0 < len(partial.tokens) < LONG
    assert len(partial.logprobs) == len(partial.tokens)
    assert partial.spans == ((0, 0, len(partial.tokens)),)
    _assert_drawn_from(engine.folder, partial)


def test_abort_without_an_id_ends_everything(engine: ServedFolder) -> None:
    with engine.running(LONG, prompts=2) as request:
        engine.client.abort()
        assert [output.finish_reason for output in request.result(timeout=10)] == ["abort", "abort"]


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_a_pause_holds_tokens_back_until_it_is_ended(engine: ServedFolder, mode: PauseMode) -> None:
    with engine.running(LONG) as request:
        engine.client.pause(mode)
        time.sleep(0.5)
        assert not request.done()
        engine.client.resume()
        (output,) = request.result(timeout=60)
    assert (output.finish_reason, len(output.tokens)) == ("length", LONG)
    _assert_drawn_from(engine.folder, output)


def test_a_paused_engine_is_healthy_but_makes_no_step(engine: ServedFolder) -> None:
    engine.client.check_generates()
    engine.client.pause()
    assert engine.client.healthy()
    with pytest.raises(EngineUnreachable):
        engine.client.check_generates()
    engine.client.resume()
    engine.client.check_generates()


def test_a_pause_that_aborts_returns_partial_outputs_at_once(engine: ServedFolder) -> None:
    with engine.running(LONG) as request:
        engine.client.pause("abort")
        (output,) = request.result(timeout=10)
    assert output.finish_reason == "abort"
    assert 0 < len(output.tokens) < LONG


@pytest.mark.parametrize("mode", ["in_place", "retract", "abort"])
def test_a_request_waits_for_the_end_of_a_pause(engine: ServedFolder, mode: PauseMode) -> None:
    engine.client.pause(mode)
    with ThreadPoolExecutor(1) as pool:
        scored = pool.submit(engine.client.score, [RUNNING_PROMPT])
        time.sleep(0.3)
        assert not scored.done()
        engine.client.resume()
        assert len(scored.result(timeout=10)[0]) == len(RUNNING_PROMPT) - 1


def test_retract_lets_new_weights_start_from_keys_of_their_own(engine: ServedFolder, changed: Path) -> None:
    output = _updated_under_way(engine, changed, "retract", flush_cache=True)
    before, after = output.spans
    drawn, old, new = _drawn_old_new(engine, changed, output)
    torch.testing.assert_close(drawn[: before.end], old[: before.end], atol=1e-4, rtol=0)
    torch.testing.assert_close(drawn[after.start :], new[after.start :], atol=1e-4, rtol=0)
    assert (drawn[after.start :] - old[after.start :]).abs().max() > 0.01


def test_in_place_new_weights_go_on_from_the_keys_of_the_old(engine: ServedFolder, changed: Path) -> None:
    output = _updated_under_way(engine, changed, "in_place", flush_cache=False)
    before, after = output.spans
    drawn, old, new = _drawn_old_new(engine, changed, output)
    torch.testing.assert_close(drawn[: before.end], old[: before.end], atol=1e-4, rtol=0)
    for pure in (old, new):
        assert (drawn[after.start :] - pure[after.start :]).abs().max() > 0.01


def test_keys_in_use_cannot_be_flushed(engine: ServedFolder, changed: Path) -> None:
    with engine.running(LONG) as request:
        with pytest.raises(EngineRefused):
            engine.client.flush_cache()
        engine.client.pause("in_place")
        with pytest.raises(EngineRefused):
            engine.client.flush_cache()
        with pytest.raises(EngineRefused, match="updated, but the cache was not flushed"):
            engine.client.update_from_disk(changed)
        engine.client.pause("retract")
        engine.client.flush_cache()
        engine.client.resume()
        assert request.result(timeout=60)[0].finish_reason == "length"


def test_without_a_pause_an_update_waits_for_the_running_request(engine: ServedFolder, changed: Path) -> None:
    with engine.running(LONG) as request:
        engine.client.update_from_disk(changed)
        (output,) = request.result(timeout=60)
    _assert_drawn_from(engine.folder, output)


def test_a_stamp_alone_splits_the_spans_of_a_running_request(engine: ServedFolder) -> None:
    with engine.running(LONG) as request:
        engine.client.stamp(1)
        before, after = request.result(timeout=60)[0].spans
    assert (before.version, before.start, after.version, after.end) == (0, 0, 1, LONG)
    assert 0 < before.end == after.start < LONG
    assert engine.client.model_info().weight_version == "1"


def test_a_busy_engine_is_seen_to_generate(engine: ServedFolder) -> None:
    with engine.running(3 * LONG) as request:  # SGLang looks once a second
        engine.client.check_generates()
        assert not request.done()


def _assert_drawn_from(folder: Path, output: Generation) -> None:
    expected = response_logprobs(folder, RUNNING_PROMPT, output, RUNNING_TEMPERATURE)
    torch.testing.assert_close(torch.tensor(output.logprobs), expected, atol=1e-4, rtol=0)


def _updated_under_way(engine: ServedFolder, changed: Path, mode: PauseMode, flush_cache: bool) -> Generation:
    """A long output during which the weights were changed and stamped 7."""
    with engine.running(LONG) as request:
        engine.client.pause(mode)
        engine.client.update_from_disk(changed, flush_cache)
        engine.client.stamp(7)
        engine.client.resume()
        (output,) = request.result(timeout=60)
    before, after = output.spans
    assert (before.version, before.start, after.version, after.end) == (0, 0, 7, LONG)
    assert 0 < before.end == after.start < LONG
    return output


def _drawn_old_new(
    engine: ServedFolder, changed: Path, output: Generation
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities of an output: as told, and of the old and the new weights alone."""
    old, new = (
        response_logprobs(folder, RUNNING_PROMPT, output, RUNNING_TEMPERATURE)
        for folder in (engine.folder, changed)
    )
    return torch.tensor(output.logprobs), old, new
