"""From a /generate body to sequences, and from finished sequences to its answer."""

import base64
import secrets
import uuid

from configs.errors import UserError
from infra.engines.embedded.model import ServedModel
from infra.engines.embedded.sequence import Sequence
from infra.engines.protocol import (
    FinishReason,
    GenerateRequest,
    GenerateResult,
    MetaInfo,
    SamplingParams,
    TokenLogprob,
)


class BadRequest(UserError):
    """A request that cannot be served as it is; the message says what to change."""


def admit(request: GenerateRequest, model: ServedModel) -> list[Sequence]:
    """The sequences of a request, checked against the model's limits; BadRequest says what is wrong."""
    prompts = _prompts(request, model)
    params = _one_each(request.sampling_params, len(prompts), "sampling_params")
    ids = _ids(request, len(prompts))
    sequences = []
    for number, (prompt, param, id_) in enumerate(zip(prompts, params, ids, strict=True)):
        _check(f"input_ids[{number}]", prompt, param, request, model)
        seed = secrets.randbits(63) if param.sampling_seed is None else param.sampling_seed
        scored = request.return_logprob and request.logprob_start_len >= 0
        score_from = request.logprob_start_len if scored else None
        sequences.append(Sequence(id_, tuple(prompt), param, seed, score_from, request.return_routed_experts))
    return sequences


def is_batch(request: GenerateRequest) -> bool:
    """Whether the answer is a list."""
    if request.input_ids is not None:
        return bool(request.input_ids) and isinstance(request.input_ids[0], list)
    return isinstance(request.text, list)


def results(sequences: list[Sequence], request: GenerateRequest, model: ServedModel) -> list[GenerateResult]:
    """The answer's objects, in the order of the request."""
    texts = model.text.decode([_shown(sequence) for sequence in sequences])
    return [
        _result(sequence, text, request.return_logprob)
        for sequence, text in zip(sequences, texts, strict=True)
    ]


def _prompts(request: GenerateRequest, model: ServedModel) -> list[list[int]]:
    if (request.input_ids is None) == (request.text is None):
        raise BadRequest("give either input_ids or text")
    if request.text is not None:
        if not model.text.available:
            raise BadRequest("text needs a tokenizer.json beside the weights: give input_ids")
        texts = request.text if isinstance(request.text, list) else [request.text]
        return [model.text.encode(text) for text in texts]
    batch = request.input_ids if is_batch(request) else [request.input_ids]
    if not batch:
        raise BadRequest("input_ids is empty: give at least one prompt")
    return batch  # type: ignore[return-value]  # lists of lists by is_batch


def _one_each(params: list[SamplingParams] | SamplingParams, count: int, name: str) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise BadRequest(f"{name} has {len(params)} entries for {count} prompts: give one, or one each")
    return params


def _ids(request: GenerateRequest, count: int) -> list[str]:
    if isinstance(request.rid, list):
        if len(request.rid) != count:
            raise BadRequest(f"rid has {len(request.rid)} entries for {count} prompts: give one each")
        return request.rid
    prefix = request.rid or uuid.uuid4().hex
    return [f"{prefix}_{number}" for number in range(count)] if is_batch(request) else [prefix]


def _check(
    name: str, prompt: list[int], params: SamplingParams, request: GenerateRequest, model: ServedModel
) -> None:
    if not prompt:
        raise BadRequest(f"{name} is empty: a prompt needs at least one token")
    outside = next((token for token in prompt if not 0 <= token < model.vocab_size), None)
    if outside is not None:
        raise BadRequest(f"{name} holds token {outside}, the vocabulary is 0..{model.vocab_size - 1}")
    total = len(prompt) + params.max_new_tokens
    if total > model.context_length:
        raise BadRequest(
            f"{name} has {len(prompt)} tokens and asks for {params.max_new_tokens} more, which is {total}; "
            f"the context length is {model.context_length}: shorten one of them"
        )
    if request.logprob_start_len >= len(prompt):
        raise BadRequest(f"logprob_start_len {request.logprob_start_len} is past the end of {name}")
    if request.return_routed_experts and model.routing is None:
        raise BadRequest("return_routed_experts: the served model has no experts")
    if request.return_routed_experts and params.max_new_tokens == 0:
        raise BadRequest("return_routed_experts needs max_new_tokens of at least 1")
    if params.stop_strings and not model.text.available:
        raise BadRequest("stop needs a tokenizer.json beside the weights: leave it out")


def _shown(sequence: Sequence) -> list[int]:
    """Output without the end-of-sequence token that stopped it."""
    stopped = sequence.finish is not None and isinstance(sequence.finish.matched, int)
    return sequence.output[:-1] if stopped else sequence.output


def _result(sequence: Sequence, text: str, with_logprobs: bool) -> GenerateResult:
    finish = sequence.finish or FinishReason(type="length", length=0)
    if isinstance(finish.matched, str):
        text = text[: text.find(finish.matched)]
    return GenerateResult(
        text=text,
        output_ids=tuple(sequence.output),
        meta_info=MetaInfo(
            id=sequence.id,
            finish_reason=finish,
            prompt_tokens=len(sequence.prompt),
            completion_tokens=len(sequence.output),
            weight_version=sequence.spans[-1].version,
            weight_versions=tuple(sequence.spans),
            output_token_logprobs=_entries(sequence.logprobs, sequence.output) if with_logprobs else None,
            input_token_logprobs=_prompt_entries(sequence),
            routed_experts=_encoded_experts(sequence),
        ),
    )


def _entries(logprobs: list[float], tokens: list[int]) -> tuple[TokenLogprob, ...]:
    return tuple((logprob, token, None) for logprob, token in zip(logprobs, tokens, strict=True))


def _prompt_entries(sequence: Sequence) -> tuple[TokenLogprob, ...] | None:
    if sequence.prompt_logprobs is None:
        return None
    first, *rest = sequence.prompt[sequence.score_from :]
    return ((None, first, None), *_entries(sequence.prompt_logprobs, rest))


def _encoded_experts(sequence: Sequence) -> str | None:
    if sequence.routed_experts_TLE is None:
        return None
    return base64.b64encode(sequence.routed_experts_TLE.numpy().tobytes()).decode()
