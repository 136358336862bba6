"""Generating the rollout batch of a step."""

import math
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from configs.errors import UserError
from configs.run import RunConfig
from infra.engines.client import Generation, SamplingParams
from infra.engines.router import Servers
from tasks.fleet.dispatch import Request, dispatch, sampling_seed
from tasks.record.samples import Group, Problem, RolloutBatch, Sample, VersionSpan


class PromptLengthError(UserError):
    """A prompt leaves no room for its response in the engine's context."""


def generate_batch(
    servers: Servers,
    problems: Sequence[Problem],
    tokenizer: PreTrainedTokenizerBase,
    config: RunConfig,
    step: int,
    start: int,
) -> RolloutBatch:
    """One group of rollout.samples_per_prompt samples for each problem, ungraded.

    `start` is the number of the first problem in the run's stream.

    Every sample has a seed of (config.seed, step, prompt number, sample number), and engine.count calls
    carry the groups in a fixed split, so that the batch is a function of configuration, step and weights,
    whichever engines answer. Raises PromptLengthError, and what `dispatch` raises.
    """
    per_prompt = config.rollout.samples_per_prompt
    prompts = [_encode(problem, tokenizer, config) for problem in problems]
    requests = [
        Request(prompt, _sampling(config, step, number, sample))
        for number, prompt in enumerate(prompts)
        for sample in range(per_prompt)
    ]
    groups_per_call = math.ceil(len(problems) / config.engine.count)
    generations = dispatch(servers, requests, groups_per_call * per_prompt)
    return RolloutBatch(
        step,
        tuple(
            _group(problem, prompt, generations[number * per_prompt : (number + 1) * per_prompt])
            for number, (problem, prompt) in enumerate(zip(problems, prompts, strict=True))
        ),
        cursor=start + len(problems),
    )


def _encode(problem: Problem, tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> list[int]:
    prompt = tokenizer(problem.prompt).input_ids
    room = config.engine.context_length - config.rollout.max_new_tokens
    if len(prompt) > room:
        raise PromptLengthError(
            f"problem {problem.id}: its prompt of {len(prompt)} tokens does not fit in engine.context_length "
            f"{config.engine.context_length} less rollout.max_new_tokens {config.rollout.max_new_tokens}: "
            f"raise engine.context_length to at least {len(prompt) + config.rollout.max_new_tokens}"
        )
    return prompt


def _sampling(config: RunConfig, step: int, prompt: int, sample: int) -> SamplingParams:
    return SamplingParams(
        max_new_tokens=config.rollout.max_new_tokens,
        temperature=config.rollout.temperature,
        stop=config.rollout.stop,
        sampling_seed=sampling_seed("rollout", config.seed, step, prompt, sample),
    )


def _group(problem: Problem, prompt: list[int], generations: list[Generation]) -> Group:
    return Group(
        problem,
        tuple(
            Sample(
                prompt_tokens=tuple(prompt),
                response_tokens=generation.tokens,
                rollout_logprobs=generation.logprobs,
                spans=tuple(VersionSpan(*span) for span in generation.spans),
                finish_reason=generation.finish_reason,
            )
            for generation in generations
        ),
    )
