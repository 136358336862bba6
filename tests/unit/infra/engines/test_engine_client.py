"""The client's errors, against a real small HTTP server."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

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
        self.asked: list[str] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up has closed the connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answers

    def do_POST(self) -> None:
        self.server.asked.append(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        time.sleep(self.server.delay_s)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body.encode())

    do_GET = do_POST  # the base class's name

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
    assert EngineUnreachable.retryable


def test_a_silent_server_is_a_timeout(answers: Answers) -> None:
    answers.delay_s = 1.0
    client = EngineClient(f"http://127.0.0.1:{answers.server_port}", timeout_s=0.2)
    begun = time.monotonic()
    with pytest.raises(EngineTimeout, match=r"no answer within 0\.2 s"):
        client.score([[1, 2]])
    assert time.monotonic() - begun < 0.9
    assert EngineTimeout.retryable


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
        client.update_from_disk("/somewhere")
    assert type(caught.value) is error
    assert "/update_weights_from_disk" in str(caught.value)


def test_a_refusal_is_not_retried(answers: Answers) -> None:
    assert not EngineRefused.retryable
    assert not EngineFailed.retryable


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
