"""/generate: what is drawn, how it is reported and where it ends."""

import random

import httpx
import pytest
import torch

from infra.engines.client import EngineClient, EngineRefused, EngineTimeout, Generation, SamplingParams
from tests.support.engines import ServedFolder, reference_logprobs, response_logprobs, soon

PROMPT = [10, 20, 30, 40]
RAGGED = [[7], [9, 8, 7, 6, 5, 4], [11, 12, 13], [9, 8, 7, 6, 5, 4]]
END = 2

pytestmark = pytest.mark.slow


def _free(tokens: int, **options: object) -> SamplingParams:
    """Parameters of an output that runs to its limit."""
    return SamplingParams(max_new_tokens=tokens, ignore_eos=True, **options)


def _assert_logprobs(output: Generation, expected: torch.Tensor) -> None:
    torch.testing.assert_close(torch.tensor(output.logprobs), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_logprobs_are_those_of_transformers_at_the_temperature(
    engine: ServedFolder, temperature: float
) -> None:
    params = [_free(40, temperature=temperature, sampling_seed=n) for n in range(len(RAGGED))]
    for prompt, output in zip(RAGGED, engine.client.generate(RAGGED, params), strict=True):
        assert len(output.tokens) == 40
        _assert_logprobs(output, response_logprobs(engine.folder, prompt, output, temperature))


def test_rows_that_end_early_leave_the_others_right(engine: ServedFolder) -> None:
    prompts = [PROMPT] * 16
    params = [_free(3 * n + 1, sampling_seed=n) for n in range(16)]
    for length, output in enumerate(engine.client.generate(prompts, params)):
        assert len(output.tokens) == 3 * length + 1
        _assert_logprobs(output, response_logprobs(engine.folder, PROMPT, output))


def test_greedy_takes_the_likeliest_token(engine: ServedFolder) -> None:
    (output,) = engine.client.generate([PROMPT], [_free(20, temperature=0)])
    sequence = [*PROMPT, *output.tokens]
    for token in (0, 50, 100, 150):
        rivals = [*sequence[:-1], token]
        assert reference_logprobs(engine.folder, rivals)[-1] <= output.logprobs[-1] + 1e-5
    _assert_logprobs(output, response_logprobs(engine.folder, PROMPT, output))


def test_the_same_seed_gives_the_same_bits_and_another_does_not(engine: ServedFolder) -> None:
    def draw(seeds: list[int]) -> list[Generation]:
        return engine.client.generate([PROMPT] * len(seeds), [_free(50, sampling_seed=s) for s in seeds])

    first = draw([1, 2, 3])
    assert draw([1, 2, 3]) == first
    assert len({output.tokens for output in first}) == 3
    assert draw([4, 2, 5])[1].tokens == first[1].tokens


def test_a_batch_gives_what_its_prompts_give_alone(engine: ServedFolder) -> None:
    params = [_free(30, sampling_seed=n) for n in range(len(RAGGED))]
    together = engine.client.generate(RAGGED, params)
    for prompt, param, output in zip(RAGGED, params, together, strict=True):
        (alone,) = engine.client.generate([prompt], [param])
        assert alone.tokens == output.tokens
        assert alone.logprobs == pytest.approx(output.logprobs, abs=1e-5)


def test_a_batch_longer_than_what_is_decoded_together_keeps_its_order(engine: ServedFolder) -> None:
    prompts = [[n % 300 + 3, n // 300 + 3] for n in range(300)]
    scores = [s[0] for s in engine.client.score([[*p, 5] for p in prompts])]
    outputs = engine.client.generate(prompts, [_free(1, temperature=0)] * 300)
    for number in (0, 127, 128, 299):
        assert scores[number] == pytest.approx(
            float(reference_logprobs(engine.folder, [*prompts[number], 5])[0]), abs=1e-5
        )
        _assert_logprobs(outputs[number], response_logprobs(engine.folder, prompts[number], outputs[number]))


def test_an_output_ends_at_its_limit_or_at_the_end_token(engine: ServedFolder) -> None:
    limited = engine.client.generate([PROMPT], [_free(5)])[0]
    assert (limited.finish_reason, len(limited.tokens)) == ("length", 5)
    params = [SamplingParams(max_new_tokens=250, temperature=2.0, sampling_seed=n) for n in range(8)]
    ended = engine.client.generate([PROMPT] * 8, params)
    assert any(output.finish_reason == "stop" for output in ended)
    for output in ended:
        if output.finish_reason == "stop":
            assert output.tokens[-1] == END
            assert END not in output.tokens[:-1]


def test_a_stop_string_ends_the_output_with_the_token_that_completes_it(engine: ServedFolder) -> None:
    free = _raw(engine, {"max_new_tokens": 40, "ignore_eos": True, "sampling_seed": 3})
    stop = free["text"][5:7]
    stopped = _raw(engine, {"max_new_tokens": 40, "ignore_eos": True, "sampling_seed": 3, "stop": [stop]})
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert stopped["text"] == free["text"][: free["text"].find(stop)]
    length = len(stopped["output_ids"])
    assert 0 < length < 40
    assert stopped["output_ids"] == free["output_ids"][:length]


def test_scores_are_those_of_transformers_at_temperature_1(engine: ServedFolder) -> None:
    generator = random.Random(0)
    sequences = [[generator.randrange(3, 300) for _ in range(length)] for length in (2, 60, 17, 130)]
    for sequence, scores in zip(sequences, engine.client.score(sequences), strict=True):
        expected = reference_logprobs(engine.folder, sequence)
        torch.testing.assert_close(torch.tensor(scores), expected, atol=1e-5, rtol=0)


def test_scores_after_a_prefix_are_those_of_the_whole(engine: ServedFolder) -> None:
    sequences = [list(range(3, 20)), list(range(3, 12))]
    whole = engine.client.score(sequences)
    for _ in range(2):  # the second time from a cache, where there is one
        for scored, after in zip(whole, engine.client.score(sequences, start=5), strict=True):
            assert after == pytest.approx(scored[5:], abs=1e-5)


def test_one_prompt_is_answered_by_one_object_in_sglangs_shape(engine: ServedFolder) -> None:
    answer = _raw(engine, {"max_new_tokens": 4, "ignore_eos": True, "sampling_seed": 0})
    meta = answer["meta_info"]
    assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
    assert [entry[1] for entry in meta["input_token_logprobs"]] == PROMPT
    assert meta["input_token_logprobs"][0][0] is None
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(PROMPT), 4)
    assert meta["weight_versions"] == [{"version": "0", "start": 0, "end": 4}]
    assert meta["finish_reason"] == {"type": "length", "length": 4}


def test_a_prompt_beyond_the_context_is_refused_with_the_reason(engine: ServedFolder) -> None:
    with pytest.raises(EngineRefused, match="context length"):
        engine.client.score([[1] * 3000])


def test_a_client_that_gives_up_leaves_nothing_running(engine: ServedFolder) -> None:
    hasty = EngineClient(engine.client.url, timeout_s=0.5)
    with pytest.raises(EngineTimeout):
        hasty.generate([PROMPT] * 64, [_free(1900)] * 64)
    hasty.close()
    assert soon(lambda: not engine.busy(), timeout_s=20)


def _raw(engine: ServedFolder, params: dict[str, object]) -> dict:
    """The body of an answer to a single prompt."""
    body = {
        "input_ids": PROMPT,
        "sampling_params": params,
        "return_logprob": True,
        "logprob_start_len": 0,
    }
    answer = httpx.post(f"{engine.client.url}/generate", json=body, timeout=30, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()
