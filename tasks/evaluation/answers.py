"""Asking engines every problem of an evaluation and grading their answers."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from configs.errors import RunFailure
from configs.run import RunConfig
from infra.engines.client import Generation, SamplingParams
from infra.engines.router import Servers
from tasks.fleet.dispatch import Request, dispatch, sampling_seed
from tasks.record.samples import Problem
from tasks.record.shown import ShownSample
from tasks.reward.base import Grade, Reward
from tasks.reward.responses import decode_responses, grade_text
from tasks.rollout.generate import PromptLengthError

log = logging.getLogger(__name__)

_WRONG = Grade(reward=0.0)


class EvaluationError(RunFailure):
    """The engines' answers cannot be counted as those of one weight version."""


class Response(NamedTuple):
    """What an engine wrote."""

    text: str
    tokens: int
    truncated: bool
    """Whether it was cut at the longest length."""


@dataclass(frozen=True)
class Answers:
    """The answers to one problem, and their grades."""

    problem: Problem
    greedy: Grade
    sampled: tuple[Grade, ...]
    responses: tuple[Response, ...]
    """The greedy one, then the sampled ones; none when the prompt did not fit in the engine's context, which
    makes every answer a wrong one."""

    @property
    def grades(self) -> tuple[Grade, ...]:
        """Of the greedy answer, then of the sampled ones."""
        return (self.greedy, *self.sampled)

    def shown(self, dataset: str, version: int) -> list[ShownSample]:
        """The responses as people read them."""
        return [
            ShownSample(
                step=None,
                dataset=dataset,
                versions=(version,),
                problem=self.problem.id,
                prompt=self.problem.prompt,
                answer=self.problem.answer,
                greedy=number == 0,
                response=response.text,
                tokens=response.tokens,
                truncated=response.truncated,
                reward=grade.reward,
                ungraded_because=grade.ungraded_because,
            )
            for number, (response, grade) in enumerate(zip(self.responses, self.grades, strict=False))
        ]


def collect_answers(
    servers: Servers,
    problems: Sequence[Problem],
    tokenizer: PreTrainedTokenizerBase,
    config: RunConfig,
    dataset: str,
    version: int,
) -> list[Answers]:
    """One greedy and evaluation.samples sampled answers to each problem; raises what `evaluate` does."""
    prompts = [tokenizer(problem.prompt).input_ids for problem in problems]
    fitting = _fitting(prompts, config, dataset)
    samples = config.evaluation.samples
    requests = [request for n in fitting for request in _requests(prompts[n], n, config, dataset)]
    generations = iter(dispatch(servers, requests, config.engine.batch_size))
    answers = [Answers(problem, _WRONG, (_WRONG,) * samples, ()) for problem in problems]
    reward = config.reward.build()
    for number in fitting:
        given = [next(generations) for _ in range(1 + samples)]
        answers[number] = _graded(problems[number], given, reward, tokenizer, version)
    return answers


def _fitting(prompts: list[list[int]], config: RunConfig, dataset: str) -> list[int]:
    """Numbers of the prompts that leave room for a response."""
    new, context = _max_new_tokens(config), config.engine.context_length
    fitting = [number for number, prompt in enumerate(prompts) if len(prompt) + new <= context]
    if not fitting:
        raise PromptLengthError(
            f"{dataset}: no prompt fits in engine.context_length {context} with {new} new tokens: "
            f"raise engine.context_length to at least {min(map(len, prompts)) + new}"
        )
    if len(fitting) < len(prompts):
        log.warning(
            "%s: %d of %d prompts do not fit in engine.context_length %d and count as wrong; %d holds all",
            *(dataset, len(prompts) - len(fitting), len(prompts), context, max(map(len, prompts)) + new),
        )
    return fitting


def _requests(prompt: list[int], number: int, config: RunConfig, dataset: str) -> list[Request]:
    """The greedy request of a problem, then the sampled ones."""
    temperatures = [0.0] + [config.evaluation.temperature] * config.evaluation.samples
    return [
        Request(
            prompt,
            SamplingParams(
                max_new_tokens=_max_new_tokens(config),
                temperature=temperature,
                stop=config.rollout.stop,
                sampling_seed=sampling_seed("evaluation", dataset, number, answer),
            ),
        )
        for answer, temperature in enumerate(temperatures)
    ]


def _max_new_tokens(config: RunConfig) -> int:
    return config.evaluation.max_new_tokens or config.rollout.max_new_tokens


def _graded(
    problem: Problem,
    generations: list[Generation],
    reward: Reward,
    tokenizer: PreTrainedTokenizerBase,
    version: int,
) -> Answers:
    for generation in generations:
        if generation.finish_reason == "abort":
            raise EvaluationError(f"an answer to problem {problem.id} was aborted: evaluate again")
        for span in generation.spans:
            if span.version != version:
                raise EvaluationError(
                    f"problem {problem.id} was answered by version {span.version}, not {version}"
                )
    texts = decode_responses(tokenizer, [generation.tokens for generation in generations])
    greedy, *sampled = (grade_text(reward, problem, text) for text in texts)
    responses = tuple(
        Response(text, len(generation.tokens), generation.finish_reason == "length")
        for text, generation in zip(texts, generations, strict=True)
    )
    return Answers(problem, greedy, tuple(sampled), responses)
