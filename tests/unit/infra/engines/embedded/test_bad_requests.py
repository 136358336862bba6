"""A request that cannot be served is a 4xx that says what is wrong, and the engine goes on.

SGLang is not as strict: it takes some of these, and dies of a token outside the vocabulary.
"""

import base64
import pickle
from collections.abc import Iterator

import httpx
import pytest

from configs.engine import EmbeddedEngine
from infra.engines.client import EngineRefused
from tests.support.engines import TINY_MODEL, ServedFolder, running_engine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFolder]:
    """An embedded engine of the tiny model."""
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with running_engine(EmbeddedEngine(context_length=2048), TINY_MODEL, log) as served:
        yield served


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
        ("/generate", {"input_ids": [1], "return_routed_experts": True}, "no experts"),
        ("/abort_request", {}, "give rid"),
        ("/pause_generation", {"mode": "gently"}, "mode"),
        ("/get_weights_by_name", {"name": "none"}, "none"),
        ("/update_weights_from_disk", {"model_path": "/nowhere"}, "/nowhere/config.json is missing"),
        ("/update_weights_from_tensor", {"serialized_named_tensors": [""]}, "must run between"),
        ("/update_weights_from_distributed", {"names": [], "dtypes": [], "shapes": []}, "must run between"),
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


@pytest.mark.parametrize(
    "bucket", ["", "not base64", base64.b64encode(pickle.dumps([("a", print)])).decode()], ids=repr
)
def test_a_bucket_that_is_no_tensors_is_refused(engine: ServedFolder, bucket: str) -> None:
    engine.client.begin_update()
    body = {"serialized_named_tensors": [bucket]}
    answer = httpx.post(
        engine.client.url + "/update_weights_from_tensor", json=body, timeout=10, trust_env=False
    )
    engine.client.end_update()
    assert (answer.status_code, answer.json()["success"]) == (400, False)
    assert "not a flattened bucket" in answer.text
