"""The only speaker of the engines' protocol: a synchronous client with a deadline on each call."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from pydantic import TypeAdapter, ValidationError

from infra.engines import protocol
from infra.engines.connection import Connection, parse
from infra.engines.errors import EngineError, EngineFailed, EngineRefused, EngineTimeout, EngineUnreachable
from infra.engines.fit import require_architecture, require_complete, require_fit
from infra.engines.generation import UNSTAMPED, Generation, Span, read_generation, read_logprobs
from infra.engines.protocol import ModelInfo, PauseMode, RankChecksums, SamplingParams, ServerInfo
from infra.weights_folder import Shapes, WeightsFolder, WeightsMismatch

if TYPE_CHECKING:
    from infra.engines.tensors import PackedBucket  # with torch, which a client of requests can spare

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

_HEALTH_TIMEOUT_S = 5.0
_PROBE_TIMEOUT_S = 30.0
_CONTROL_CONNECTIONS = 8
_BUCKET = "<bucket>"
"""Stands for base64, which has nothing to escape: an encoder of JSON would look for it for longer than all
else takes."""
_RESULTS = TypeAdapter(list[protocol.GenerateResult])
_VALUES = TypeAdapter(list[float] | list[list[float]])


class EngineClient:
    """Speaks to one engine over reused connections; safe to share between threads.

    Updates of weights take `flush_cache`, which drops the keys and values of the old weights. That needs an
    engine that runs nothing, not paused or paused by `retract`. Under requests that are paused in place it is
    refused, with the weights already changed: say flush_cache=False there, and those requests go on from the
    keys and values of the old weights.
    """

    def __init__(self, url: str, timeout_s: float = 600, concurrency: int = 64) -> None:
        """`timeout_s` is the deadline of every call but the health checks, seconds; at most `concurrency`
        generate and score calls are under way at once, and control calls never wait for them."""
        self.url = url.rstrip("/")
        self._generation = Connection(url, timeout_s, concurrency)
        self._control = Connection(url, timeout_s, _CONTROL_CONNECTIONS)
        self._seen: WeightsFolder | None = None

    def close(self) -> None:
        """Give the connections back."""
        self._generation.close()
        self._control.close()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],
        rids: Sequence[str] | None = None,
        routed_experts: bool = False,
    ) -> list[Generation]:
        """One output for each prompt, as one batch; `rids` name them for `abort`. Waits while paused.

        With `routed_experts` each output also tells which experts its tokens went to.
        """
        if not prompts:
            return []
        request = protocol.GenerateRequest(
            input_ids=[list(prompt) for prompt in prompts],
            sampling_params=list(params),
            rid=None if rids is None else list(rids),
            return_logprob=True,
            return_routed_experts=routed_experts,
        )
        layers = self._layers if routed_experts else None
        return [read_generation(result, layers) for result in self._generate(request)]

    def score(self, sequences: Sequence[Sequence[int]], start: int = 0) -> list[list[float]]:
        """Log-probabilities at temperature 1 of tokens[start + 1:], given what precedes each.

        Keys and values of tokens[:start] may come from a prefix cache, those of the others never do. Waits
        while paused.
        """
        if not sequences:
            return []
        request = protocol.GenerateRequest(
            input_ids=[list(sequence) for sequence in sequences],
            sampling_params=SamplingParams(max_new_tokens=0),
            return_logprob=True,
            logprob_start_len=start,
        )
        scored = [result.meta_info.input_token_logprobs or () for result in self._generate(request)]
        return [read_logprobs(entries[1:]) for entries in scored]

    def healthy(self) -> bool:
        """Whether the server answers at all; cheap, and says nothing of the model."""
        try:
            self._control.get("/health", _HEALTH_TIMEOUT_S)
        except EngineError:
            return False
        return True

    def check_generates(self) -> None:
        """Have the model make a step; an EngineError when it does not, be it for a pause."""
        self._control.get("/health_generate", _PROBE_TIMEOUT_S)

    def model_info(self) -> ModelInfo:
        """What is served, and its weight version."""
        return parse(ModelInfo, self._control.get("/model_info", _HEALTH_TIMEOUT_S))

    def pause(self, mode: PauseMode = "retract") -> None:
        """Stop generation before its next token; requests wait until `resume`.

        retract has them compute keys and values anew after it, with the weights of that time; in_place has
        them keep what they have; abort ends them.
        """
        self._control.post("/pause_generation", protocol.PauseRequest(mode=mode))

    def resume(self) -> None:
        """Go on after `pause`."""
        self._control.post("/continue_generation", protocol.ContinueRequest())

    def abort(self, rid: str | None = None) -> None:
        """End the request with this id, or all; they return the tokens that they have, when not paused."""
        self._control.post("/abort_request", protocol.AbortRequest(rid=rid or "", abort_all=rid is None))

    def flush_cache(self) -> None:
        """Drop cached keys and values; EngineRefused while requests run, unless `retract` paused them."""
        self._control.post("/flush_cache")

    def update_from_disk(
        self, path: str | Path, flush_cache: bool = True, like: Path | WeightsFolder | None = None
    ) -> None:
        """Load the weights of a folder that the engine can read.

        EngineRefused, with nothing changed, when these are not all the weights of what is served: SGLang
        itself takes any, and answers success. Where this process cannot read `path`, `like` is a folder of
        the same tensors that it can read, or what the engine's machine reads in `path`.
        """
        self._require_loadable(like or Path(path))
        request = protocol.UpdateFromDiskRequest(model_path=str(path), flush_cache=flush_cache)
        self._update("/update_weights_from_disk", request)

    def begin_update(self) -> None:
        """Open a weight-update session."""
        self._update("/begin_weight_update")

    def end_update(self) -> None:
        """Close the weight-update session."""
        self._update("/end_weight_update")

    def update_from_bucket(self, bucket: "PackedBucket", flush_cache: bool = True) -> None:
        """Replace weights, by their names in Hugging Face's layout. In a session.

        Pause the engine if none may be drawn from between two buckets. EngineRefused, with nothing changed,
        when one does not fit.
        """
        self._require_fit(bucket.shapes)  # SGLang dies of a misfit
        request = protocol.UpdateFromTensorsRequest(
            serialized_named_tensors=[_BUCKET] * self._ranks, flush_cache=flush_cache
        )
        around = request.model_dump_json(exclude_none=True).encode().split(_BUCKET.encode())
        parts = [part for text in around for part in (text, bucket.content)][:-1]
        _require_success(self._control.post_large("/update_weights_from_tensor", parts))

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
        self,
        names: Sequence[str],
        dtypes: Sequence[str],
        shapes: Sequence[Sequence[int]],
        group_name: str,
        flush_cache: bool = True,
    ) -> None:
        """Receive tensors, in order, that rank 0 broadcasts meanwhile; dtypes as in `float32`. In a session.

        EngineRefused when one does not fit; all were received, so that the group is still in step, and the
        engine may hold a part of them.
        """
        request = protocol.UpdateFromGroupRequest(
            names=list(names),
            dtypes=list(dtypes),
            shapes=[list(shape) for shape in shapes],
            group_name=group_name,
            flush_cache=flush_cache,
        )
        self._update("/update_weights_from_distributed", request)
        self._require_fit({name: tuple(shape) for name, shape in zip(names, shapes, strict=True)})

    def stamp(self, version: int) -> None:
        """Set the weight version that tokens carry from now on; running requests go on."""
        request = protocol.UpdateVersionRequest(new_version=str(version), abort_all_requests=False)
        self._update("/update_weight_version", request)

    def checksums(self) -> tuple[RankChecksums, ...]:
        """Content hash of every served tensor, for each rank of the engine; there is at least one."""
        answer = self._update("/weights_checker", protocol.CheckWeightsRequest())
        ranks = parse(protocol.CheckWeightsResponse, answer).ranks
        if not ranks:
            raise EngineFailed(f"{answer.url}: no rank told what it holds")
        return ranks

    def get_weights(self, name: str, truncate_size: int = 100) -> list[float] | list[list[float]]:
        """The first rows (or values, of a vector) of a tensor."""
        request = protocol.GetWeightsRequest(name=name, truncate_size=truncate_size)
        return _VALUES.validate_json(self._control.post("/get_weights_by_name", request).content)

    @cached_property
    def _ranks(self) -> int:
        """Tensor-parallel ranks, each of which takes a copy of every bucket."""
        return parse(ServerInfo, self._control.get("/server_info", _HEALTH_TIMEOUT_S)).tp_size

    @property
    def _layers(self) -> int:
        """Layers of the served model: what an array of routed experts is cut into."""
        served = self._served(self.model_info())
        if served is None or served.layers is None:
            raise EngineFailed(
                f"{self.url}: routed experts need a config.json beside the weights, with its layers"
            )
        return served.layers

    def _require_loadable(self, folder: Path | WeightsFolder) -> None:
        info = self.model_info()
        served = self._served(info)
        with self._refusing():
            offered = folder if isinstance(folder, WeightsFolder) else WeightsFolder(folder)
            require_architecture(offered, info.architectures or ())
            if served is not None:
                require_complete(offered, served.shapes)
                require_fit(offered.shapes, served.shapes)

    def _require_fit(self, offered: Shapes) -> None:
        served = self._served(self.model_info())
        if served is not None:
            with self._refusing():
                require_fit(offered, served.shapes)

    def _served(self, info: ModelInfo) -> WeightsFolder | None:
        """The folder that the engine names, or else the last that could be read here: it may be gone by now,
        or on another machine."""
        if self._seen is None or self._seen.folder != Path(info.model_path):
            with suppress(WeightsMismatch):
                self._seen = WeightsFolder(Path(info.model_path))
        return self._seen

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except WeightsMismatch as error:
            raise EngineRefused(f"{self.url}: {error}") from None

    def _generate(self, request: protocol.GenerateRequest) -> list[protocol.GenerateResult]:
        answer = self._generation.post("/generate", request)
        try:
            return _RESULTS.validate_json(answer.content)
        except ValidationError as error:
            raise EngineFailed(f"{answer.url}: not a /generate answer: {error.errors()[0]['msg']}") from None

    def _update(self, path: str, request: protocol.Request | None = None) -> httpx.Response:
        return _require_success(self._control.post(path, request))


def _require_success(answer: httpx.Response) -> httpx.Response:
    outcome = parse(protocol.UpdateResponse, answer)
    if not outcome.success:
        raise EngineRefused(f"{answer.url}: {outcome.message}")
    return answer
