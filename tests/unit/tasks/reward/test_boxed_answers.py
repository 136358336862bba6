r"""Finding the last balanced \boxed{...} and reading the integer in it."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.reward import BoxedIntegerReward
from tasks.record.samples import Problem
from tasks.reward.base import Grade
from tasks.reward.boxed import extract_boxed
from tasks.reward.integers import read_integer
from tasks.reward.responses import grade_text

REWARD = BoxedIntegerReward().build()
DATA = Path(os.environ.get("OVERNIGHT_TEST_DATA", Path(__file__).parents[5] / "shared" / "data"))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{13}.", "13"),
        (r"\boxed{12}, no, \boxed{13}", "13"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\boxed{}", ""),
        (r"\boxed{12} and then \boxed{13", "12"),
        (r"\boxed{\boxed{13}}", "13"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1\}}", r"1\}"),
        (r"{ open \boxed{5}", "5"),
        (r"} closed \boxed{5}}", "5"),
        (r"\boxed{13", None),
        (r"\boxed{\text{13}", None),
        (r"\boxed 13", None),
        ("13", None),
        ("", None),
    ],
)
def test_extract_boxed(text, content):
    assert extract_boxed(text) == content


@given(st.text(alphabet=r"\boxed{} 1"), st.integers(), st.text(alphabet="abc 19.$"))
def test_a_closed_box_after_anything_is_found(before, answer, after):
    assert extract_boxed(f"{before} \\boxed{{{answer}}}{after}") == str(answer)


@given(st.text(alphabet=r"\boxed{} 1", max_size=60))
def test_whatever_is_found_is_balanced_and_boxed(text):
    content = extract_boxed(text)
    if content is not None:
        assert "{" + content + "}" in text
        unescaped = content.replace(r"\{", "").replace(r"\}", "")
        assert unescaped.count("{") == unescaped.count("}")


@pytest.mark.parametrize(
    "hostile",
    [
        "{" * 100_000,
        r"\boxed{" * 100_000,
        r"\boxed{" * 100_000 + "}" * 100_000,
        r"\boxed" + " " * 100_000,
        r"\boxed{" + "{" * 100_000 + "}" * 99_999,
        r"\boxed{" + "{" * 100_000 + "}" * 100_001,
        r"\boxed{" + r"\text{" * 100_000 + "1" + "}" * 100_001,
        r"\boxed{" + "9" * 100_000 + "}",
        r"\boxed{" + "1 " * 100_000 + "}",
    ],
)
def test_hostile_texts_are_graded_in_linear_time(hostile):
    started = time.perf_counter()
    assert REWARD.grade(Problem("p", "", "13"), hostile) == Grade(reward=0.0)
    assert time.perf_counter() - started < 2.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("13", 13),
        (" 13 ", 13),
        ("025", 25),
        ("-7", -7),
        ("+7", 7),
        ("- 7", -7),
        ("−7", -7),
        ("1,234", 1234),
        ("1{,}234{,}567", 1234567),
        (r"1,\!234", 1234),
        (r"1\,234", 1234),
        ("1 234", 1234),
        ("13.0", 13),
        ("13.", 13),
        (r"\text{13}", 13),
        (r"\mathbf{ 13 }", 13),
        ("{13}", 13),
        ("$13$", 13),
        (r"\(13\)", 13),
        ("**73**", 73),
        ("x = 13", 13),
        ("Answer: $13$", 13),
        (r"10\text{ cm}", 10),
        (r"10\,\mathrm{cm}", 10),
        (r"60^\circ", 60),
        (r"60^{\circ}", 60),
        (r"\$18", 18),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), None),
        ("", None),
        ("1, 234", None),
        ("1,23", None),
        ("1, 2, 3", None),
        ("12 34", None),
        ("13.5", None),
        ("1/2", None),
        (r"\frac{26}{2}", None),
        (r"50\%", None),
        ("2^3", None),
        (r"4\sqrt{2}", None),
        ("1e3", None),
        ("0x10", None),
        ("١٣", None),
        ("--7", None),
        ("thirteen", None),
        (r"\text{13", None),
        (r"\text{cm}", None),
    ],
)
def test_read_integer(text, value):
    assert read_integer(text) == value


@given(st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1))
def test_integers_are_read_back_however_they_are_written(value):
    for text in (str(value), f"{value:,}", f"{value:,}".replace(",", "{,}"), f"${value}$", f"{value}.00"):
        assert read_integer(text) == value


@given(st.text(max_size=40))
def test_any_text_is_read_without_an_error(text):
    read_integer(text)


def known(name):
    file = DATA / name
    if not file.exists():
        pytest.skip(f"{file} is not there: set OVERNIGHT_TEST_DATA to the folder that holds {name}")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in rows if row["gold"].isdigit()]


def test_known_answer_pairs_with_integer_golds():
    rows = known("answer_pairs.jsonl")
    assert len(rows) >= 7
    for row in rows:
        assert (read_integer(row["pred"]) == int(row["gold"])) is row["equal"], row


def test_known_texts_with_integer_golds():
    r"""A right answer outside a box earns nothing, by decision: the box is the format that is trained."""
    rows = known("answer_texts.jsonl")
    assert len(rows) >= 5
    for row in rows:
        expected = row["equal"] and r"\boxed" in row["text"]
        assert REWARD.grade(Problem("p", "", row["gold"]), row["text"]).reward == expected, row


@pytest.mark.parametrize(
    ("prefix", "response", "reward", "answer"),
    [
        ("", r"so \boxed{1,234}", 1.0, "1234"),
        ("", r"so \boxed{01234.0}", 1.0, "1234"),
        (r"\boxed{", "1234}", 1.0, "1234"),
        ("", r"\boxed{-0}", 0.0, "0"),
        ("", r"\boxed{x}", 0.0, None),
        ("", "1234", 0.0, None),
    ],
)
def test_a_grade_has_the_answer_in_one_way_of_writing_it(prefix, response, reward, answer):
    problem = Problem("p", "", "1234", response_prefix=prefix)
    assert REWARD.grade(problem, response) == Grade(reward, answer)


def test_a_gold_is_an_integer():
    assert [REWARD.check_gold(gold) for gold in ("025", "1,234", "18.0", "-3")] == ["25", "1234", "18", "-3"]
    with pytest.raises(ValueError, match=r"must be an integer of at most 64 bits, not '1/2'"):
        REWARD.check_gold("1/2")


def test_a_problem_whose_gold_is_no_integer_is_ungraded():
    grade = grade_text(REWARD, Problem("p", "", "1/2"), r"\boxed{2}")
    assert grade.reward is None
    assert grade.ungraded_because == "ValueError: must be an integer of at most 64 bits, not '1/2'"


@pytest.mark.parametrize(
    "fields", [{}, {"reward": 1.0, "ungraded_because": "both"}, {"reward": float("inf")}]
)
def test_a_grade_has_a_finite_reward_or_a_reason(fields):
    with pytest.raises(ValueError, match=r"either a reward or the reason|must be finite"):
        Grade(**fields)
