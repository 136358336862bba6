"""The client's errors, against a real small HTTP server."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from infra.engines.client import (
    UNSTAMPED,
    EngineClient,
    EngineError,
    EngineFailed,
    EngineRefused,
    EngineTimeout,
    EngineUnreachable,
    SamplingParams,
)
from infra.engines.tensors import buckets, pack, unpack
from infra.process import free_port

RESULT = """[{"text": "a", "output_ids": [5, 6], "new_field": 1, "meta_info": {
  "id": "x", "finish_reason": {"type": "length", "length": 2}, "prompt_tokens": 1, "completion_tokens": 2,
  "output_token_logprobs": [[-0.5, 5, null], [-0.25, 6, null]],
  "weight_versions": [
    {"version": "default", "start": 0, "end": 1}, {"version": "3", "start": 1, "end": 2}]}}]"""


class Answers(ThreadingHTTPServer):
    """Answers every request with one status and body, after a delay, and keeps what was asked."""

    status, body, delay_s = 200, "{}", 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: dict[str, str] = {}
        """What some paths are answered instead."""
        self.asked: list[str] = []
        self.paths: list[str] = []
        self.connections = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up has closed the connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answers

    def do_POST(self) -> None:
        self.server.asked.append(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        self.server.paths.append(self.path)
        time.sleep(self.server.delay_s)
        body = self.server.bodies.get(self.path, self.server.body)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST  # the base class's name

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def answers() -> Iterator[Answers]:
    server = Answers()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(answers: Answers) -> Iterator[EngineClient]:
    client = EngineClient(f"http://127.0.0.1:{answers.server_port}", timeout_s=2)
    yield client
    client.close()


def test_a_closed_port_is_unreachable() -> None:
    client = EngineClient(f"http://127.0.0.1:{free_port()}", timeout_s=2)
    with pytest.raises(EngineUnreachable, match="/model_info"):
        client.model_info()
    assert not client.healthy()
    assert EngineUnreachable.heals


def test_a_silent_server_is_a_timeout(answers: Answers) -> None:
    answers.delay_s = 1.0
    client = EngineClient(f"http://127.0.0.1:{answers.server_port}", timeout_s=0.2)
    begun = time.monotonic()
    with pytest.raises(EngineTimeout, match=r"no answer within 0\.2 s"):
        client.score([[1, 2]])
    assert time.monotonic() - begun < 0.9
    assert EngineTimeout.heals


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (400, '{"error": {"message": "token 9 is out of range"}}', EngineRefused, "token 9 is out of range"),
        (400, '{"success": false, "message": "no such file"}', EngineRefused, "no such file"),
        (200, '{"success": false, "message": "not now"}', EngineRefused, "not now"),
        (404, "Not Found", EngineRefused, "404 Not Found"),
        (500, '{"error": {"message": "out of memory"}}', EngineFailed, "out of memory"),
        (503, "", EngineUnreachable, "503"),
        (200, "<html>", EngineFailed, "not a UpdateResponse"),
    ],
)
def test_an_answer_that_is_not_success_is_an_error_of_its_kind(
    answers: Answers, client: EngineClient, status: int, body: str, error: type[EngineError], said: str
) -> None:
    answers.status, answers.body = status, body
    with pytest.raises(EngineError, match=said) as caught:
        client.begin_update()
    assert type(caught.value) is error
    assert "/begin_weight_update" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (400, '{"object": "error", "message": "2 validation errors: mode"}', EngineRefused, ": 2 validation"),
        (503, '{"error": {"message": "paused"}}', EngineUnreachable, "paused"),
    ],
)
def test_a_control_call_fails_with_the_engines_reason(
    answers: Answers, client: EngineClient, status: int, body: str, error: type[EngineError], said: str
) -> None:
    answers.status, answers.body = status, body
    with pytest.raises(error, match=said):
        client.pause()


def test_a_refusal_is_not_retried(answers: Answers) -> None:
    assert not EngineRefused.heals
    assert not EngineFailed.heals


def test_a_generation_is_read_and_what_is_not_known_is_ignored(
    answers: Answers, client: EngineClient
) -> None:
    answers.body = RESULT
    (output,) = client.generate([[1]], [SamplingParams(max_new_tokens=2, sampling_seed=4)])
    assert output.tokens == (5, 6)
    assert output.logprobs == (-0.5, -0.25)
    assert output.spans == ((UNSTAMPED, 0, 1), (3, 1, 2))
    assert output.finish_reason == "length"


def test_what_is_not_set_is_not_sent(answers: Answers, client: EngineClient) -> None:
    answers.body = RESULT
    client.generate([[1]], [SamplingParams(max_new_tokens=2)])
    assert "sampling_seed" not in answers.asked[0]
    assert "null" not in answers.asked[0]


def test_a_stamp_does_not_abort_running_requests(answers: Answers, client: EngineClient) -> None:
    answers.body = '{"success": true, "message": ""}'
    client.stamp(12)
    assert answers.asked == ['{"new_version":"12","abort_all_requests":false}']


def test_nothing_to_do_asks_nothing(answers: Answers, client: EngineClient) -> None:
    assert client.generate([], []) == []
    assert client.score([]) == []
    assert answers.asked == []


def test_connections_are_reused_and_bounded_and_control_calls_do_not_wait(answers: Answers) -> None:
    answers.body, answers.delay_s = RESULT, 0.3
    client = EngineClient(f"http://127.0.0.1:{answers.server_port}", timeout_s=5, concurrency=2)
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(client.generate, [[1]], [SamplingParams()]) for _ in range(6)]
        time.sleep(0.1)
        assert len(answers.asked) == 2
        client.abort()
        assert answers.paths[:3] == ["/generate", "/generate", "/abort_request"]
        for call in calls:
            call.result()
    client.close()
    assert len(answers.asked) == 7
    assert answers.connections == 3


def test_waiting_for_a_connection_counts_towards_the_deadline(answers: Answers) -> None:
    answers.body, answers.delay_s = RESULT, 0.5
    client = EngineClient(f"http://127.0.0.1:{answers.server_port}", timeout_s=0.8, concurrency=1)
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(client.generate, [[1]], [SamplingParams()]) for _ in range(3)]
        failures = [call.exception() for call in calls]
    client.close()
    assert sum(isinstance(failure, EngineTimeout) for failure in failures) >= 1


def test_routed_experts_are_cut_into_tokens_and_layers(
    answers: Answers, client: EngineClient, tmp_path: Path
) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 3}')
    experts = np.arange(2 * 3 * 4, dtype=np.int32)
    encoded = base64.b64encode(experts.tobytes()).decode()
    answers.bodies["/model_info"] = json.dumps({"model_path": str(tmp_path), "weight_version": "1"})
    answers.body = RESULT.replace('"id": "x"', f'"id": "x", "routed_experts": "{encoded}"')
    (output,) = client.generate([[1]], [SamplingParams(max_new_tokens=2)], routed_experts=True)
    assert output.routed_experts is not None
    assert output.routed_experts.tolist() == experts.reshape(2, 3, 4).tolist()
    answers.body = RESULT
    with pytest.raises(EngineFailed, match=r"engine\.routed_experts"):
        client.generate([[1]], [SamplingParams(max_new_tokens=2)], routed_experts=True)


def test_every_rank_gets_every_bucket(answers: Answers, client: EngineClient) -> None:
    answers.body = '{"success": true}'
    answers.bodies["/model_info"] = '{"model_path": "/nowhere", "weight_version": "1"}'
    answers.bodies["/server_info"] = json.dumps(
        {
            "model_path": "",
            "device": "",
            "dtype": "",
            "context_length": 1,
            "max_running_requests": 1,
            "tp_size": 2,
        }
    )
    tensors = {f"t{number}": torch.full((8,), float(number)) for number in range(3)}
    for bucket in buckets(tensors.items(), 64):
        client.update_from_bucket(pack(bucket))
    sent = [json.loads(body) for body in answers.asked if "serialized_named_tensors" in body]
    assert [list(unpack(body["serialized_named_tensors"][1])) for body in sent] == [
        ["t0", "t1"],
        ["t2"],
    ]


def test_an_engine_of_which_no_rank_tells_what_it_holds_has_failed(
    answers: Answers, client: EngineClient
) -> None:
    answers.body = '{"success": true, "ranks": []}'
    with pytest.raises(EngineFailed, match="no rank told what it holds"):
        client.checksums()
