"""HTTP to one engine: reused connections, a deadline on each call, every failure an EngineError."""

import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from infra.engines import protocol
from infra.engines.errors import EngineFailed, EngineRefused, EngineTimeout, EngineUnreachable

M = TypeVar("M", bound=BaseModel)
_KEEP_ALIVE_S = 4.0
"""Shorter than servers keep an idle connection (SGLang: 5 s), so that none is used that was just closed."""

_LEAST_TIMEOUT_S = 0.001
_PIECE_BYTES = 2**20


class Connection:
    """A bounded pool of connections; safe to share between threads."""

    def __init__(self, url: str, timeout_s: float, connections: int) -> None:
        """At most `connections` calls are under way at once; others wait, within their deadline."""
        self.url = url.rstrip("/")
        no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # spares each client the loading of the CA bundle
        self._timeout_s = timeout_s
        self._free = threading.BoundedSemaphore(connections)
        self._http = httpx.Client(
            base_url=self.url,
            limits=httpx.Limits(
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=_KEEP_ALIVE_S,
            ),
            trust_env=False,
            verify=no_tls,
        )

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def get(self, path: str, timeout_s: float | None = None) -> httpx.Response:
        """GET; the deadline is the client's unless given."""
        return self._call("GET", path, None, timeout_s)

    def post(self, path: str, request: protocol.Request | None = None) -> httpx.Response:
        """POST a request; what is not set is not sent."""
        return self._call("POST", path, request.model_dump_json(exclude_none=True) if request else "{}", None)

    def post_large(self, path: str, parts: Sequence[bytes]) -> httpx.Response:
        """POST a large body of JSON, the parts one after the other."""
        return self._call("POST", path, _Pieces(parts), None)

    def delete(self, path: str) -> httpx.Response:
        """DELETE."""
        return self._call("DELETE", path, None, None)

    def _call(
        self, method: str, path: str, body: "str | _Pieces | None", timeout_s: float | None
    ) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if isinstance(body, _Pieces):
            headers["Content-Length"] = str(body.size)
        timeout = timeout_s or self._timeout_s
        deadline = time.monotonic() + timeout
        try:
            with self._turn(timeout):
                left = max(deadline - time.monotonic(), _LEAST_TIMEOUT_S)
                answer = self._http.request(method, path, content=body, headers=headers, timeout=left)
        except (httpx.TimeoutException, TimeoutError):
            raise EngineTimeout(f"{self.url}{path}: no answer within {timeout:g} s") from None
        except httpx.TransportError as error:
            raise EngineUnreachable(f"{self.url}{path}: {error or type(error).__name__}") from None
        if answer.is_success:
            return answer
        message = f"{answer.url}: {_message(answer)}"
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise EngineUnreachable(message)
        raise EngineFailed(message) if answer.is_server_error else EngineRefused(message)

    @contextmanager
    def _turn(self, timeout_s: float) -> Iterator[None]:
        """One of the calls that may be under way; httpx's own pool would wait for longer than it was told."""
        if not self._free.acquire(timeout=timeout_s):
            raise TimeoutError
        try:
            yield
        finally:
            self._free.release()


class _Pieces:
    """A body in pieces of at most _PIECE_BYTES: of a larger one each write to the socket copies the rest."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.size = sum(map(len, parts))
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            for start in range(0, len(part), _PIECE_BYTES):
                yield part[start : start + _PIECE_BYTES]


def parse(model: type[M], answer: httpx.Response) -> M:
    """The answer's body; EngineFailed when it is something else."""
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise EngineFailed(f"{answer.url}: not a {model.__name__}: {error.errors()[0]['msg']}") from None


def _message(answer: httpx.Response) -> str:
    """What the engine says is wrong, whichever of its two error shapes it chose."""
    for shape in (protocol.ErrorResponse, protocol.ErrorDetail):
        try:
            body = shape.model_validate_json(answer.content)
        except ValidationError:
            continue
        return body.error.message if isinstance(body, protocol.ErrorResponse) else body.message
    return f"{answer.status_code} {answer.text.strip()[:500]}"
