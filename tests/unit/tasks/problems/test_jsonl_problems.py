"""JSONL problems: every line is checked, and training passes over the file in a new order each time."""

import json

import pytest

from configs.problems import AdditionProblems, JsonlProblems
from configs.reward import BoxedIntegerReward
from tasks.problems.base import DataError
from tasks.problems.jsonl import JsonlSource, prompt_template, read_problems

REWARD = BoxedIntegerReward().build()
GOOD = {"problem": "What is $2^3$?", "answer": "8"}


def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def source_of(path, **options):
    return JsonlSource(JsonlProblems(kind="jsonl", path=path, **options), REWARD)


def test_reads_problems_in_order(tmp_path):
    path = write(
        tmp_path / "p.jsonl", GOOD, "", {"problem": r"{x} \{y\}", "answer": -4, "id": "b", "level": 5}, GOOD
    )
    problems = read_problems(path, "Q: {problem}\nA:", REWARD)
    assert [(p.id, p.answer) for p in problems] == [("1", "8"), ("b", "-4"), ("4", "8")]
    assert problems[1].prompt == "Q: {x} \\{y\\}\nA:"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(7, "7"), ("025", "25"), ("1,234", "1234"), (18.0, "18"), ("-3", "-3"), (2**63 - 1, str(2**63 - 1))],
)
def test_integer_answers_as_files_write_them(tmp_path, answer, expected):
    path = write(tmp_path / "p.jsonl", {"problem": "?", "answer": answer})
    assert read_problems(path, "{problem}", REWARD)[0].answer == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"problem": "?", "answer": 1', "Invalid JSON"),
        ("[1, 2]", "is not a mapping"),
        ({"problem": "?"}, "answer: missing: give it a value"),
        ({"problem": "", "answer": 1}, "problem: "),
        ({"problem": 5, "answer": 1}, "problem: "),
        ({"problem": "?", "answer": r"\frac{1}{2}"}, "answer: must be an integer"),
        ({"problem": "?", "answer": 1.5}, "answer: must be an integer"),
        ({"problem": "?", "answer": True}, "answer: must be text or a number"),
        ({"problem": "?", "answer": None}, "answer: must be text or a number"),
        ({"problem": "?", "answer": 2**63}, "answer: must be an integer of at most 64 bits"),
        ("[" * 100_000, "Invalid JSON"),
    ],
)
def test_a_broken_line_is_one_line_of_error_with_file_and_number(tmp_path, line, reason):
    path = write(tmp_path / "p.jsonl", GOOD, line, GOOD)
    with pytest.raises(DataError) as error:
        read_problems(path, "{problem}", REWARD)
    message = str(error.value)
    assert message.startswith(f"{path}:2: ") and reason in message
    assert "\n" not in message and len(message) < 300


class AnyText:
    """A reward that grades by any answer."""

    def grade(self, problem, response):
        raise NotImplementedError

    def check_gold(self, answer):
        return answer


def test_the_runs_reward_says_which_answers_a_file_may_have(tmp_path):
    path = write(
        tmp_path / "p.jsonl", {"problem": "?", "answer": r"\frac{1}{2}"}, {"problem": "?", "answer": 1.5}
    )
    assert [p.answer for p in read_problems(path, "{problem}", AnyText())] == [r"\frac{1}{2}", "1.5"]


def test_text_that_is_not_utf8_is_a_broken_line(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"problem": "\xff", "answer": 1}\n')
    with pytest.raises(DataError, match=r"p\.jsonl:2: "):
        read_problems(path, "{problem}", REWARD)


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.jsonl: cannot be read"):
        read_problems(tmp_path / "nowhere.jsonl", "{problem}", REWARD)
    with pytest.raises(DataError, match="holds no problem"):
        read_problems(write(tmp_path / "empty.jsonl", ""), "{problem}", REWARD)


@pytest.fixture
def source(tmp_path):
    lines = [{"problem": f"number {n}", "answer": n} for n in range(60)]
    return source_of(write(tmp_path / "p.jsonl", *lines), held_out_fraction=0.2)


def test_training_covers_the_file_once_a_pass_and_is_a_cursor(source):
    size = 60 - len(source.held_out(None, 60))
    stream = source.training(seed=0, start=0, count=3 * size)
    first, second = ([p.answer for p in stream[i * size : (i + 1) * size]] for i in (0, 1))
    assert sorted(first) == sorted(set(first)) == sorted(second)
    assert first != second
    assert source.training(seed=0, start=size - 5, count=size + 10) == stream[size - 5 : 2 * size + 5]
    assert source.training(seed=1, start=0, count=size) != stream[:size]


def test_held_out_problems_never_appear_in_training(source):
    held_out = {p.prompt for p in source.held_out(None, 60)}
    assert 2 <= len(held_out) <= 30
    assert not held_out & {p.prompt for p in source.training(0, 0, 200)}
    assert [p.prompt for p in source.held_out(None, 2)] == [p.prompt for p in source.held_out(None, 60)][:2]
    assert {p.prompt for p in source.held_out(3, 60)} == held_out


def test_duplicates_stay_on_one_side(tmp_path):
    lines = [{"problem": f"number {n % 20}", "answer": n % 20} for n in range(60)]
    source = source_of(write(tmp_path / "p.jsonl", *lines), held_out_fraction=0.3)
    held_out = [p.prompt for p in source.held_out(None, 60)]
    assert len(held_out) == 3 * len(set(held_out))
    assert not set(held_out) & {p.prompt for p in source.training(0, 0, 60)}


@pytest.mark.parametrize(("fraction", "advice"), [(0.999999, "lower"), (0.000001, "raise")])
def test_a_split_with_an_empty_side_says_what_to_change(tmp_path, fraction, advice):
    path = write(tmp_path / "p.jsonl", GOOD)
    with pytest.raises(DataError, match=f"{advice} problems.held_out_fraction"):
        source_of(path, held_out_fraction=fraction)


def test_foreign_problems_use_the_runs_template():
    assert prompt_template(JsonlProblems(kind="jsonl", path="/p", template="<{problem}>")) == "<{problem}>"
    assert prompt_template(AdditionProblems(kind="few_shot_addition")) == "Problem: {problem}\nSolution:"
