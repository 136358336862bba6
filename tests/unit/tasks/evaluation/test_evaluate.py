"""Evaluation of a weight version on a real engine, and its report."""

import json
from pathlib import Path
from statistics import fmean

import pytest
from transformers import AutoTokenizer

from configs.loading import override, parse_config
from infra.engines.client import EngineClient, Generation, Span
from tasks.evaluation.answers import EvaluationError
from tasks.evaluation.evaluate import evaluate
from tasks.problems import build_source
from tasks.problems.jsonl import prompt_template, read_problems
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.samples import Problem
from tasks.rollout.generate import PromptLengthError
from tests.support.engines import TINY_MODEL, tiny_engine

VERSION = 2
CONFIG = parse_config(
    {
        "name": "unit",
        "model": {"kind": "folder", "path": str(TINY_MODEL)},
        "problems": {"kind": "arithmetic"},
        "evaluation": {"samples": 3, "bootstrap": 200},
    },
    folder=Path("/"),
)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(TINY_MODEL)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with tiny_engine(tmp_path_factory.mktemp("engine"), VERSION) as client:
        yield client


@pytest.fixture(scope="module")
def held_out():
    return build_source(CONFIG).held_out(None, 60)


@pytest.fixture(scope="module")
def report(engine, held_out, tokenizer):
    return evaluate([engine], held_out, tokenizer, CONFIG, "held-out", VERSION)


@pytest.mark.slow
def test_the_shares_follow_from_the_rows(report, held_out):
    rows = report.problems
    assert (report.n, report.k, report.version, report.too_long) == (60, 3, VERSION, 0)
    assert [row.id for row in rows] == [problem.id for problem in held_out]
    assert [row.answer for row in rows] == [problem.answer for problem in held_out]
    assert all(row.correct == sum(a == row.answer for a in row.sampled_answers) for row in rows)
    assert report.avg_at_k == pytest.approx(fmean(row.correct / 3 for row in rows))
    assert report.pass_at_k == pytest.approx(fmean(row.correct > 0 for row in rows))
    assert report.greedy == pytest.approx(fmean(row.greedy_answer == row.answer for row in rows))
    assert report.greedy == pytest.approx(fmean(row.greedy_correct for row in rows))
    assert report.ungraded == 0
    assert report.ci_low < report.avg_at_k < report.ci_high
    assert report.avg_at_k < report.pass_at_k
    assert report.maj_at_k <= report.pass_at_k


@pytest.mark.slow
def test_families_add_up_to_the_whole(report, held_out):
    assert set(report.greedy_by_family) == {"sum", "product", "remainder"}
    sizes = {name: sum(p.family == name for p in held_out) for name in report.greedy_by_family}
    total = sum(report.greedy_by_family[name] * size for name, size in sizes.items())
    assert total / 60 == pytest.approx(report.greedy)


@pytest.mark.slow
def test_the_warm_start_guesses(report):
    assert report.greedy < 0.15
    assert 0.1 < report.avg_at_k < 0.45
    assert report.truncated_fraction < 0.05


@pytest.mark.slow
def test_an_evaluation_repeats_exactly(engine, held_out, tokenizer, report):
    again = evaluate([engine], held_out, tokenizer, CONFIG, "held-out", VERSION)
    assert again.model_copy(update={"finished_at": report.finished_at}) == report
    assert EvaluationReport.model_validate_json(report.model_dump_json()) == report
    other = evaluate([engine], held_out, tokenizer, CONFIG, "other", VERSION)
    assert [r.greedy_answer for r in other.problems] == [r.greedy_answer for r in report.problems]
    assert [r.sampled_answers for r in other.problems] != [r.sampled_answers for r in report.problems]


@pytest.mark.slow
def test_a_jsonl_file_with_prompts_that_do_not_fit(engine, tokenizer, tmp_path):
    lines = [
        {"id": "short", "problem": r"Find the value of 47 \cdot 8.", "answer": "376"},
        {"id": "long", "problem": "Find the value. " * 100, "answer": "025"},
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    problems = read_problems(path, prompt_template(CONFIG.problems), CONFIG.reward.build())
    report = evaluate([engine], problems, tokenizer, CONFIG, path.stem, VERSION)
    short, long = report.problems
    assert report.too_long == 1
    assert short.greedy_answer is not None
    assert (long.greedy_answer, long.sampled_answers, long.correct) == (None, (None,) * 3, 0)
    assert report.avg_at_k == pytest.approx(short.correct / 3 / 2)
    assert report.greedy_by_family == {}


@pytest.mark.slow
def test_another_version_than_asked_for_is_an_error(engine, held_out, tokenizer):
    with pytest.raises(EvaluationError, match=f"version {VERSION}, not 3"):
        evaluate([engine], held_out[:4], tokenizer, CONFIG, "held-out", 3)


class AbortingEngine(EngineClient):
    def __init__(self):
        pass

    def generate(self, prompts, params, *_, **__):
        return [Generation((5,), (-1.0,), (Span(VERSION, 0, 1),), "abort") for _ in prompts]


def test_an_aborted_answer_is_an_error_not_a_wrong_answer(held_out, tokenizer):
    with pytest.raises(EvaluationError, match="aborted"):
        evaluate([AbortingEngine()], held_out[:4], tokenizer, CONFIG, "held-out", VERSION)


class AnsweringEngine(EngineClient):
    """Gives the same text to everything, but the second sampled answer twelve times over."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def generate(self, prompts, params, *_, **__):
        texts = [" 417" * (12 if number % 4 == 2 else 1) for number in range(len(prompts))]
        tokens = self._tokenizer(texts, add_special_tokens=False).input_ids
        return [
            Generation(tuple(each), (-1.0,) * len(each), (Span(VERSION, 0, len(each)),), "stop")
            for each in tokens
        ]


def test_the_runs_reward_grades_and_what_it_fails_on_is_counted(tokenizer, caplog):
    config = override(CONFIG, ["reward={kind: 'tests.support.own_reward:DigitShare', longest: 20}"])
    problems = [Problem("right", "?", "417"), Problem("close", "?", "427")]
    report = evaluate([AnsweringEngine(tokenizer)], problems, tokenizer, config, "digits", VERSION)
    right, close = report.problems
    assert (right.greedy_answer, right.greedy_correct, right.correct) == ("417", True, 2)
    assert (close.greedy_answer, close.greedy_correct, close.correct) == ("417", False, 0)
    assert right.sampled_answers == close.sampled_answers == ("417", None, "417")
    assert (report.greedy, report.avg_at_k, report.maj_at_k) == (0.5, pytest.approx(1 / 3), 0.5)
    assert report.ungraded == report.metrics()["eval/digits/ungraded"] == 2
    assert "digits: 2 answers are ungraded, the first: ValueError: a response of 48" in caplog.text


def test_no_prompt_that_fits_names_the_field_to_change(tokenizer):
    problems = [Problem("p", "Find the value. " * 100, "1")]
    with pytest.raises(
        PromptLengthError, match=r"long: no prompt fits .* raise engine\.context_length to at least"
    ):
        evaluate([], problems, tokenizer, CONFIG, "long", VERSION)


@pytest.mark.slow
def test_metrics_carry_names_that_mlflow_takes(report):
    metrics = report.model_copy(update={"dataset": "aime (2024)"}).metrics()
    assert metrics["eval/aime__2024_/avg_at_k"] == report.avg_at_k
    assert metrics["eval/aime__2024_/greedy_sum"] == report.greedy_by_family["sum"]
    assert {name.rsplit("/", 1)[1] for name in metrics} >= {
        *(
            "greedy",
            "avg_at_k",
            "pass_at_k",
            "maj_at_k",
            "ci_low",
            "ci_high",
            "truncated_fraction",
            "too_long",
            "ungraded",
        )
    }
