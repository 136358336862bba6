"""The only speaker of the engines' protocol: a synchronous client with a deadline on each call."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from configs.errors import RunFailure
from infra.engines import protocol
from infra.engines.protocol import ModelInfo, PauseMode, RankChecksums, SamplingParams

__all__ = [
    "UNSTAMPED",
    "EngineClient",
    "EngineError",
    "EngineFailed",
    "EngineRefused",
    "EngineTimeout",
    "EngineUnreachable",
    "Generation",
    "ModelInfo",
    "RankChecksums",
    "SamplingParams",
    "Span",
]

M = TypeVar("M", bound=BaseModel)
UNSTAMPED = -1
"""Version of tokens whose engine carries no stamp, or none that is a number."""
_HEALTH_TIMEOUT_S = 5.0
_PROBE_TIMEOUT_S = 30.0
_RESULTS = TypeAdapter(list[protocol.GenerateResult])
_VALUES = TypeAdapter(list[float] | list[list[float]])


class EngineError(RunFailure):
    """A call to an engine did not do what was asked."""

    retryable: ClassVar[bool] = False


class EngineUnreachable(EngineError):
    """Nothing answers at the address, the connection broke, or the engine is not ready yet."""

    retryable = True


class EngineTimeout(EngineError):
    """No answer within the deadline."""

    retryable = True


class EngineRefused(EngineError):
    """The engine said no (4xx, or success false); the message is its own."""


class EngineFailed(EngineError):
    """The engine broke while it served the call (5xx), or gave an answer that is not the protocol's."""


class Span(NamedTuple):
    """Output tokens [start, end) were drawn from weight version `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One output. Log-probabilities are natural logs of softmax(logits / temperature)."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    spans: tuple[Span, ...]
    finish_reason: Literal["stop", "length", "abort"]


class EngineClient:
    """Speaks to one engine over a reused connection; safe to share between threads."""

    def __init__(self, url: str, timeout_s: float = 600) -> None:
        """`timeout_s` is the deadline of every call but the health checks, seconds."""
        self.url = url.rstrip("/")
        no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # spares each client the loading of the CA bundle
        self._http = httpx.Client(base_url=self.url, timeout=timeout_s, trust_env=False, verify=no_tls)

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def generate(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams], rid: str | None = None
    ) -> list[Generation]:
        """One output for each prompt, as one batch; `rid` names it for `abort`. Waits while paused."""
        if not prompts:
            return []
        request = protocol.GenerateRequest(
            input_ids=[list(prompt) for prompt in prompts],
            sampling_params=list(params),
            rid=rid,
            return_logprob=True,
        )
        return [_generation(result) for result in self._generate(request)]

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities at temperature 1 of tokens[1:], given what precedes each. Waits while paused."""
        if not sequences:
            return []
        request = protocol.GenerateRequest(
            input_ids=[list(sequence) for sequence in sequences],
            sampling_params=SamplingParams(max_new_tokens=0),
            return_logprob=True,
            logprob_start_len=0,
        )
        scored = [result.meta_info.input_token_logprobs or () for result in self._generate(request)]
        return [_logprobs(entries[1:]) for entries in scored]

    def healthy(self) -> bool:
        """Whether the server answers at all; cheap, and says nothing of the model."""
        try:
            self._call("GET", "/health", timeout_s=_HEALTH_TIMEOUT_S)
        except EngineError:
            return False
        return True

    def probe(self) -> None:
        """Have the model make a step; an EngineError when it does not."""
        self._call("GET", "/health_generate", timeout_s=_PROBE_TIMEOUT_S)

    def model_info(self) -> ModelInfo:
        """What is served, and its weight version."""
        return _parse(ModelInfo, self._call("GET", "/model_info", timeout_s=_HEALTH_TIMEOUT_S))

    def pause(self, mode: PauseMode = "in_place") -> None:
        """Stop generation before its next token; requests wait until `resume`."""
        self._post("/pause_generation", protocol.PauseRequest(mode=mode))

    def resume(self) -> None:
        """Go on after `pause`."""
        self._post("/continue_generation", protocol.ContinueRequest())

    def abort(self, rid: str | None = None) -> None:
        """End the requests whose id begins with `rid`, or all; they return the tokens that they have."""
        self._post("/abort_request", protocol.AbortRequest(rid=rid or "", abort_all=rid is None))

    def flush_cache(self) -> None:
        """Drop cached prefixes; EngineRefused while requests run."""
        self._call("POST", "/flush_cache")

    def update_from_disk(self, path: str | Path) -> None:
        """Load the weights of a checkpoint folder that the engine can read; EngineRefused changes nothing."""
        self._update("/update_weights_from_disk", protocol.UpdateFromDiskRequest(model_path=str(path)))

    def begin_update(self) -> None:
        """Open a weight-update session."""
        self._update("/begin_weight_update")

    def end_update(self) -> None:
        """Close the weight-update session."""
        self._update("/end_weight_update")

    def init_update_group(
        self, address: str, port: int, rank_offset: int, world_size: int, group_name: str, backend: str
    ) -> None:
        """Join the process group that rank 0, the trainer, serves; returns when all have joined."""
        request = protocol.InitUpdateGroupRequest(
            master_address=address,
            master_port=port,
            rank_offset=rank_offset,
            world_size=world_size,
            group_name=group_name,
            backend=backend,
        )
        self._update("/init_weights_update_group", request)

    def destroy_update_group(self, group_name: str) -> None:
        """Leave a process group."""
        request = protocol.DestroyUpdateGroupRequest(group_name=group_name)
        self._update("/destroy_weights_update_group", request)

    def update_from_group(
        self, names: Sequence[str], dtypes: Sequence[str], shapes: Sequence[Sequence[int]], group_name: str
    ) -> None:
        """Receive tensors, in order, that rank 0 broadcasts meanwhile; dtypes as in `float32`."""
        request = protocol.UpdateFromGroupRequest(
            names=list(names),
            dtypes=list(dtypes),
            shapes=[list(shape) for shape in shapes],
            group_name=group_name,
        )
        self._update("/update_weights_from_distributed", request)

    def stamp(self, version: int) -> None:
        """Set the weight version that tokens carry from now on; running requests go on."""
        request = protocol.UpdateVersionRequest(new_version=str(version), abort_all_requests=False)
        self._update("/update_weight_version", request)

    def checksums(self) -> tuple[RankChecksums, ...]:
        """Content hash of every served tensor, for each rank of the engine."""
        answer = self._update("/weights_checker", protocol.CheckWeightsRequest())
        return _parse(protocol.CheckWeightsResponse, answer).ranks

    def get_weights(self, name: str, truncate_size: int = 100) -> list[float] | list[list[float]]:
        """The first rows (or values, of a vector) of a tensor."""
        request = protocol.GetWeightsRequest(name=name, truncate_size=truncate_size)
        return _VALUES.validate_json(self._post("/get_weights_by_name", request).content)

    def _generate(self, request: protocol.GenerateRequest) -> list[protocol.GenerateResult]:
        answer = self._post("/generate", request)
        try:
            return _RESULTS.validate_json(answer.content)
        except ValidationError as error:
            raise EngineFailed(f"{answer.url}: not a /generate answer: {error.errors()[0]['msg']}") from None

    def _update(self, path: str, request: protocol.Request | None = None) -> httpx.Response:
        answer = self._post(path, request)
        outcome = _parse(protocol.UpdateResponse, answer)
        if not outcome.success:
            raise EngineRefused(f"{answer.url}: {outcome.message}")
        return answer

    def _post(self, path: str, request: protocol.Request | None = None) -> httpx.Response:
        return self._call("POST", path, request.model_dump_json(exclude_none=True) if request else "{}")

    def _call(
        self, method: str, path: str, body: str | None = None, timeout_s: float | None = None
    ) -> httpx.Response:
        headers: Mapping[str, str] = {"Content-Type": "application/json"} if body is not None else {}
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else httpx.Timeout(timeout_s)
        try:
            answer = self._http.request(method, path, content=body, headers=headers, timeout=timeout)
        except httpx.TimeoutException:
            seconds = timeout_s or self._http.timeout.read
            raise EngineTimeout(f"{self.url}{path}: no answer within {seconds:g} s") from None
        except httpx.TransportError as error:
            raise EngineUnreachable(f"{self.url}{path}: {error or type(error).__name__}") from None
        if answer.is_success:
            return answer
        message = f"{answer.url}: {_message(answer)}"
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise EngineUnreachable(message)
        raise EngineFailed(message) if answer.is_server_error else EngineRefused(message)


def _generation(result: protocol.GenerateResult) -> Generation:
    meta = result.meta_info
    return Generation(
        tokens=result.output_ids,
        logprobs=tuple(_logprobs(meta.output_token_logprobs or ())),
        spans=tuple(Span(_version(span.version), span.start, span.end) for span in meta.weight_versions),
        finish_reason=meta.finish_reason.type,
    )


def _logprobs(entries: Sequence[protocol.TokenLogprob]) -> list[float]:
    values = [value for value, _, _ in entries if value is not None]
    if len(values) < len(entries):
        raise EngineFailed("the engine gave a log-probability that is not a number: load sound weights")
    return values


def _version(stamp: str) -> int:
    try:
        return int(stamp)
    except ValueError:
        return UNSTAMPED


def _parse(model: type[M], answer: httpx.Response) -> M:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise EngineFailed(f"{answer.url}: not a {model.__name__}: {error.errors()[0]['msg']}") from None


def _message(answer: httpx.Response) -> str:
    """What the engine says is wrong, in one line, whichever of its two error shapes it chose."""
    for shape in (protocol.ErrorResponse, protocol.UpdateResponse):
        try:
            body = shape.model_validate_json(answer.content)
        except ValidationError:
            continue
        return body.error.message if isinstance(body, protocol.ErrorResponse) else body.message
    return f"{answer.status_code} {answer.text.strip()[:500]}"
