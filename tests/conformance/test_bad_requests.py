"""A request that cannot be served is a 4xx that says what is wrong, and the engine goes on."""

import httpx
import pytest

from infra.engines.client import EngineRefused
from tests.support.engines import ServedFolder

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("server", ["llama"], indirect=True)]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/generate", {}, "either input_ids or text"),
        ("/generate", {"input_ids": [1], "text": "1"}, "either input_ids or text"),
        ("/generate", {"input_ids": []}, "empty"),
        ("/generate", {"input_ids": [[1], []]}, r"input_ids[1] is empty"),
        ("/generate", {"input_ids": [1, 320]}, "token 320"),
        ("/generate", {"input_ids": [-1]}, "token -1"),
        ("/generate", {"input_ids": [1] * 3000}, "context length is 2048"),
        (
            "/generate",
            {"input_ids": [1], "sampling_params": {"max_new_tokens": 2048}},
            "context length is 2048",
        ),
        ("/generate", {"input_ids": [1], "sampling_params": {"max_tokens": 5}}, "max_tokens"),
        ("/generate", {"input_ids": [1], "sampling_params": {"temperature": -1}}, "temperature"),
        ("/generate", {"input_ids": [1], "sampling_params": [{}, {}]}, "2 entries for 1 prompts"),
        ("/generate", {"input_ids": [[1], [2]], "rid": ["a"]}, "1 entries for 2 prompts"),
        ("/generate", {"input_ids": [1], "return_logprobs": True}, "return_logprobs"),
        ("/generate", {"input_ids": [1], "stream": True}, "stream"),
        ("/abort_request", {}, "give rid"),
        ("/pause_generation", {"mode": "gently"}, "mode"),
        ("/get_weights_by_name", {"name": "none"}, "none"),
        ("/update_weights_from_disk", {"model_path": "/nowhere"}, "/nowhere/config.json is missing"),
        ("/weights_checker", {"action": "compare"}, "action"),
    ],
)
def test_a_bad_request_says_what_is_wrong(
    engine: ServedFolder, path: str, body: dict[str, object], said: str
) -> None:
    answer = httpx.post(engine.client.url + path, json=body, timeout=10, trust_env=False)
    assert 400 <= answer.status_code < 500
    assert said in answer.text
    assert engine.client.score([[1, 2]])


def test_the_client_carries_the_message(engine: ServedFolder) -> None:
    with pytest.raises(EngineRefused, match="token 9999"):
        engine.client.score([[1, 9999]])
