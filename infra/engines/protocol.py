"""Requests and responses of the SGLang 0.5.23 HTTP endpoints in use, shared by client and embedded server.

Requests refuse unknown fields, so that a misspelt or unsupported one is an error; responses ignore them,
since a real SGLang says more than is read here.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

TokenLogprob = tuple[float | None, int, str | None]
"""Log-probability (natural log), token id, and text when asked for; None for a token without a prefix."""

PauseMode = Literal["abort", "retract", "in_place"]

UNSTAMPED = "default"
"""The weight version of an engine that nobody stamped."""


class Request(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Response(BaseModel):
    """A response body."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


class SamplingParams(Request):
    """How one sample is drawn, in SGLang's names."""

    max_new_tokens: int = Field(default=128, ge=0)
    """Longest output, tokens; 0 only scores the prompt."""
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """0 is greedy; log-probabilities are of softmax(logits / temperature), of softmax(logits) when greedy."""
    stop: tuple[str, ...] | str = ()
    """Strings that end the output; the token that completes one is kept."""
    sampling_seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    """Makes the sample a function of seed, prompt and weights; None leaves the seed to the engine."""
    ignore_eos: bool = False
    """Go on after an end-of-sequence token."""

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple without empty strings."""
        strings = (self.stop,) if isinstance(self.stop, str) else self.stop
        return tuple(string for string in strings if string)


class GenerateRequest(Request):
    """/generate: one prompt, or a list of prompts that are one batch."""

    input_ids: list[list[int]] | list[int] | None = None
    text: list[str] | str | None = None
    """Prompts as text, instead of input_ids."""
    sampling_params: list[SamplingParams] | SamplingParams = SamplingParams()
    """One for all prompts, or one each."""
    rid: list[str] | str | None = None
    """Request id; of a batch an id each, or one prefix for all."""
    return_logprob: bool = False
    return_routed_experts: bool = False
    """Which experts each token went to, of a mixture of experts."""
    logprob_start_len: int = Field(default=-1, ge=-1)
    """First prompt position to score; -1 scores none."""
    stream: Literal[False] = False


class RoutedGenerateRequest(GenerateRequest):
    """/generate as SGLang's router passes it on: with fields of its own that ask for nothing."""

    model: None = None
    return_text_in_logprobs: Literal[False] = False
    log_metrics: bool = True
    return_hidden_states: Literal[False] = False
    background: Literal[False] = False
    no_logs: bool = False
    return_bytes: Literal[False] = False
    return_entropy: Literal[False] = False


class FinishReason(Response):
    """Why an output ended."""

    type: Literal["stop", "length", "abort"]
    matched: int | str | None = None
    """The token id or string that stopped it."""
    length: int | None = None
    message: str | None = None


class WeightVersionSpan(Response):
    """Output tokens [start, end) were drawn from this weight version."""

    version: str
    start: int
    end: int


class MetaInfo(Response):
    """What /generate says of one output besides its tokens."""

    id: str
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    weight_version: str = UNSTAMPED
    weight_versions: tuple[WeightVersionSpan, ...] = ()
    output_token_logprobs: tuple[TokenLogprob, ...] | None = None
    input_token_logprobs: tuple[TokenLogprob, ...] | None = None
    """At temperature 1; the first is None."""
    routed_experts: str | None = None
    """Base64 of int32 [prompt + output - 1, layers, topk]."""


class GenerateResult(Response):
    """One output of /generate."""

    text: str = ""
    output_ids: tuple[int, ...]
    meta_info: MetaInfo


class ModelInfo(Response):
    """/model_info."""

    model_path: str
    weight_version: str
    model_type: str | None = None
    architectures: tuple[str, ...] | None = None


class ServerInfo(Response):
    """/server_info: the start-up configuration, in SGLang's names."""

    model_path: str
    device: str
    dtype: str
    context_length: int
    max_running_requests: int
    """Most samples decoded together."""
    tp_size: int = 1
    """Tensor-parallel ranks."""


class UpdateFromDiskRequest(Request):
    """/update_weights_from_disk."""

    model_path: str
    load_format: Literal["auto", "safetensors"] | None = None
    weight_version: str | None = None
    abort_all_requests: bool = False
    flush_cache: bool = True


class UpdateFromTensorsRequest(Request):
    """/update_weights_from_tensor, in a session."""

    serialized_named_tensors: list[str]
    """For each tensor-parallel rank a bucket of tensors: see `infra.engines.tensors`."""
    load_format: Literal["flattened_bucket"] = "flattened_bucket"
    weight_version: str | None = None
    abort_all_requests: bool = False
    flush_cache: bool = True


class InitUpdateGroupRequest(Request):
    """/init_weights_update_group: join a process group whose rank 0 is the trainer."""

    master_address: str
    master_port: int = Field(ge=1, le=65535)
    rank_offset: int = Field(ge=1)
    """Rank of this engine."""
    world_size: int = Field(ge=2)
    group_name: str = Field(default="weight_update_group", min_length=1)
    backend: str = "nccl"


class DestroyUpdateGroupRequest(Request):
    """/destroy_weights_update_group."""

    group_name: str = "weight_update_group"


class UpdateFromGroupRequest(Request):
    """/update_weights_from_distributed, in a session: receive these tensors, in order, from rank 0."""

    names: list[str]
    dtypes: list[str]
    """Torch names without the prefix, such as `float32`."""
    shapes: list[list[int]]
    group_name: str = "weight_update_group"
    weight_version: str | None = None
    abort_all_requests: bool = False
    flush_cache: bool = True


class UpdateVersionRequest(Request):
    """/update_weight_version: the version that tokens carry from now on."""

    new_version: str
    abort_all_requests: bool = True


class GetWeightsRequest(Request):
    """/get_weights_by_name: the first rows (or values) of a tensor."""

    name: str
    truncate_size: int = Field(default=100, ge=1)


class CheckWeightsRequest(Request):
    """/weights_checker."""

    action: Literal["checksum"] = "checksum"


class PauseRequest(Request):
    """/pause_generation: abort ends running requests, in_place keeps their KV, retract computes it anew."""

    mode: PauseMode = "abort"


class ContinueRequest(Request):
    """/continue_generation."""

    torch_empty_cache: bool = True


class AbortRequest(Request):
    """/abort_request: the request with id `rid`, or all."""

    rid: str = ""
    abort_all: bool = False


class UpdateResponse(Response):
    """What every weight call answers."""

    success: bool
    message: str = ""


class ParallelismInfo(Response):
    """Which rank of the engine speaks."""

    tp_rank: int = 0
    tp_size: int = 1


class RankChecksums(Response):
    """Hashes of the tensors of one rank, by the engine's own names."""

    checksums: dict[str, str]
    per_gpu_checksum: str
    parallelism_info: tuple[ParallelismInfo, ...] = (ParallelismInfo(),)
    """The same rank for the model and each draft model."""

    @property
    def place(self) -> ParallelismInfo:
        """Which rank holds these tensors."""
        return self.parallelism_info[0]


class CheckWeightsResponse(UpdateResponse):
    """/weights_checker."""

    ranks: Annotated[tuple[RankChecksums, ...], Field(default=())]


class ErrorDetail(Response):
    """What is wrong."""

    message: str


class ErrorResponse(Response):
    """Body of a 4xx or 5xx."""

    error: ErrorDetail
