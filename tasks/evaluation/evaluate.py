"""Evaluating the weight version that engines hold."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from transformers import PreTrainedTokenizerBase

from configs.run import RunConfig
from infra.engines.router import Servers
from tasks.evaluation.answers import Answers, collect_answers
from tasks.evaluation.scores import bootstrap_interval, majority_is_right, pass_at_k
from tasks.fleet.engines import Fleet
from tasks.fleet.serving import servers_of
from tasks.model.source import prepared_tokenizer
from tasks.problems import build_source
from tasks.problems.jsonl import prompt_template, read_problems
from tasks.record.evaluation_report import EvaluationReport, ProblemResult
from tasks.record.evaluations import HELD_OUT, find_report, save_report
from tasks.record.run import Run
from tasks.record.samples import Problem
from tasks.record.shown import ShownSample

log = logging.getLogger(__name__)

_SHOWN = 4
"""Problems whose responses a report keeps: the same ones of every version."""
_CHARACTERS = 4000
"""Of each such response and prompt."""


def found_report(run: Run, version: int) -> EvaluationReport | None:
    """What the store has of a version on the held-out problems, by the settings that the run has now."""
    found = find_report(run, version, HELD_OUT)
    return found if found and found.settings == run.config.evaluation else None


def evaluated(fleet: Fleet, version: int, dataset: Path | None) -> EvaluationReport:
    """The report of a version on a JSONL file, or on the run's held-out problems; kept in the store."""
    run, servers = fleet.run, servers_of(fleet, version)
    tokenizer = prepared_tokenizer(run.config.model, run.home)
    name = _name(dataset) if dataset else HELD_OUT
    report = evaluate(servers, _problems(run, dataset), tokenizer, run.config, name, version)
    save_report(run, report)
    return report


def evaluate(
    servers: Servers,
    problems: Sequence[Problem],
    tokenizer: PreTrainedTokenizerBase,
    config: RunConfig,
    dataset: str,
    version: int,
) -> EvaluationReport:
    """One greedy and evaluation.samples sampled answers to each problem, from engines that hold `version`.

    The seed of a sample follows from dataset, problem number and sample number alone. A prompt that does
    not fit in the engine's context counts as answered wrongly and is reported as too long; an answer that
    the run's reward fails on counts as wrong and is reported as ungraded.
    Raises PromptLengthError when no prompt fits, EvaluationError when an answer was aborted or came from
    another version, and what `dispatch` raises.
    """
    answers = collect_answers(servers, problems, tokenizer, config, dataset, version)
    k = config.evaluation.samples
    results = tuple(map(_result, answers))
    averages = [result.correct / k for result in results]
    ci_low, ci_high = bootstrap_interval(averages, config.evaluation.bootstrap)
    return EvaluationReport(
        dataset=dataset,
        version=version,
        n=len(results),
        k=k,
        greedy=fmean(result.greedy_correct for result in results),
        greedy_by_family=_greedy_by_family(answers),
        avg_at_k=fmean(averages),
        ci_low=ci_low,
        ci_high=ci_high,
        pass_at_k=fmean(pass_at_k(k, result.correct, k) for result in results),
        maj_at_k=fmean(majority_is_right(a.sampled) for a in answers),
        truncated_fraction=fmean(response.truncated for a in answers for response in a.responses),
        too_long=sum(not a.responses for a in answers),
        ungraded=_ungraded(answers, dataset),
        settings=config.evaluation,
        problems=results,
        samples=_shown(answers, dataset, version),
        finished_at=time.time(),
    )


def _shown(answers: list[Answers], dataset: str, version: int) -> tuple[ShownSample, ...]:
    first = [a for a in answers if a.responses][:_SHOWN]
    return tuple(shown.cut_short(_CHARACTERS) for a in first for shown in a.shown(dataset, version))


def _result(answers: Answers) -> ProblemResult:
    return ProblemResult(
        id=answers.problem.id,
        answer=answers.problem.answer,
        greedy_answer=answers.greedy.answer,
        greedy_correct=answers.greedy.is_right,
        sampled_answers=tuple(grade.answer for grade in answers.sampled),
        correct=sum(grade.is_right for grade in answers.sampled),
    )


def _ungraded(answers: list[Answers], dataset: str) -> int:
    """How many answers have no grade; a warning says why."""
    reasons = [grade.ungraded_because for each in answers for grade in each.grades if grade.ungraded_because]
    if reasons:
        log.warning("%s: %d answers are ungraded, the first: %s", dataset, len(reasons), reasons[0])
    return len(reasons)


def _greedy_by_family(answers: list[Answers]) -> dict[str, float]:
    right: dict[str, list[bool]] = {}
    for each in answers:
        if each.problem.family:
            right.setdefault(each.problem.family, []).append(each.greedy.is_right)
    return {family: fmean(values) for family, values in sorted(right.items())}


def _name(dataset: Path) -> str:
    """What a file's figures go by: not by the name of the run's own problems."""
    return dataset.name if dataset.stem == HELD_OUT else dataset.stem


def _problems(run: Run, dataset: Path | None) -> list[Problem]:
    if dataset is None:
        return build_source(run.config).held_out(None, run.config.evaluation.problems)
    return read_problems(dataset, prompt_template(run.config.problems), run.config.reward.build())
