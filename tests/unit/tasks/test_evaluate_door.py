"""A version is evaluated on its held-out problems once, and on a file whenever it is asked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.evaluate import evaluate_version
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import find_report
from tasks.record.run import Run


@pytest.fixture
def evaluated(
    monkeypatch: pytest.MonkeyPatch, make_report: Callable[..., EvaluationReport]
) -> list[tuple[str, int, int]]:
    """Name, version and number of problems of what was evaluated; without engines."""
    done: list[tuple[str, int, int]] = []

    def evaluate(clients, problems, tokenizer, config, name, version):
        done.append((name, version, len(problems)))
        return make_report(version, name, settings=config.evaluation)

    monkeypatch.setattr("tasks.evaluation.evaluate.evaluate", evaluate)
    monkeypatch.setattr("tasks.evaluate.is_served", lambda fleet, version: True)
    monkeypatch.setattr("tasks.evaluation.evaluate.servers_of", lambda fleet, version: [])
    return done


def write_problems(path: Path) -> Path:
    path.write_text('{"problem": "1+1", "answer": 2}\n')
    return path


def test_held_out_problems_are_answered_once_a_version(modelled_run: Run, evaluated: list) -> None:
    first = evaluate_version.fn(modelled_run, 1)
    assert evaluate_version.fn(modelled_run, 1) == first
    evaluate_version.fn(modelled_run, 2)
    assert evaluated == [("held-out", 1, 200), ("held-out", 2, 200)]
    assert find_report(modelled_run, 1, "held-out") == first


def test_other_settings_are_another_evaluation(
    modelled_run: Run, revised: Callable[..., Run], evaluated: list
) -> None:
    evaluate_version.fn(modelled_run, 1)
    run = revised(modelled_run, evaluation={"problems": 20})
    assert evaluate_version.fn(run, 1).settings.problems == 20
    assert evaluated == [("held-out", 1, 200), ("held-out", 1, 20)]


def test_a_file_is_answered_whenever_it_is_asked(modelled_run: Run, evaluated: list, tmp_path: Path) -> None:
    dataset = write_problems(tmp_path / "aime.jsonl")
    for _ in range(2):
        evaluate_version.fn(modelled_run, 1, dataset)
    assert evaluated == [("aime", 1, 1), ("aime", 1, 1)]
    assert find_report(modelled_run, 1, "aime") is not None


def test_a_file_of_the_same_name_does_not_stand_for_the_held_out_problems(
    modelled_run: Run, evaluated: list, tmp_path: Path
) -> None:
    evaluate_version.fn(modelled_run, 1, write_problems(tmp_path / "held-out.jsonl"))
    evaluate_version.fn(modelled_run, 1)
    assert [problems for _, _, problems in evaluated] == [1, 200]
