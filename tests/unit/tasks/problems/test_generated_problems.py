"""Arithmetic and addition: right answers, a cursor, and a held-out part that training never sees."""

import subprocess
import sys

import pytest

from configs.reward import BoxedIntegerReward
from tasks.problems.addition import addition_source
from tasks.problems.arithmetic import FAMILIES, arithmetic_source, worked_solution
from tasks.problems.generated import is_held_out

REWARD = BoxedIntegerReward().build()
ARITHMETIC = arithmetic_source(list(FAMILIES))
ADDITION = addition_source()


@pytest.mark.parametrize(
    ("family", "operands", "prompt", "response", "answer"),
    [
        (
            "sum",
            (475, 937),
            "Problem: Find the remainder when 475 + 937 is divided by 1000.\nSolution:",
            r" 5+7=12, 7+3+1=11, 4+9+1=14. \boxed{412}",
            "412",
        ),
        (
            "product",
            (47, 8),
            "Problem: Find the value of 47 \\cdot 8.\nSolution:",
            r" 7*8=56, 4*8+5=37. \boxed{376}",
            "376",
        ),
        (
            "remainder",
            (68, 7),
            "Problem: Let N = 68. Find the remainder when N is divided by 7.\nSolution:",
            r" 7*9=63, 68-63=5. \boxed{5}",
            "5",
        ),
    ],
)
def test_family_texts_are_those_of_the_warm_start(family, operands, prompt, response, answer):
    first, second = FAMILIES[family].first, FAMILIES[family].second
    number = first.index(operands[0]) * len(second) + second.index(operands[1])
    problem = FAMILIES[family].problem(number)
    assert (problem.prompt, problem.answer, problem.family) == (prompt, answer, family)
    assert worked_solution(problem) == response


def test_worked_solutions_are_right_and_answers_have_at_most_three_digits():
    for problem in ARITHMETIC.training(seed=1, start=0, count=500):
        assert REWARD.grade(problem, worked_solution(problem)).is_right
        assert 0 <= int(problem.answer) <= 999


@pytest.mark.parametrize("source", [ARITHMETIC, ADDITION])
def test_training_is_a_cursor(source):
    stream = source.training(seed=3, start=0, count=50)
    assert source.training(seed=3, start=20, count=30) == stream[20:]
    assert source.training(seed=4, start=0, count=50) != stream


@pytest.mark.parametrize("source", [ARITHMETIC, ADDITION])
def test_held_out_problems_never_appear_in_training(source):
    held_out = source.held_out(None, 200)
    assert len({problem.prompt for problem in held_out}) == 200
    assert all(is_held_out(problem) for problem in held_out)
    training = source.training(seed=0, start=0, count=5000)
    assert not {problem.prompt for problem in held_out} & {problem.prompt for problem in training}


@pytest.mark.parametrize("source", [ARITHMETIC, ADDITION])
def test_held_out_set_is_fixed_and_grows_at_its_end(source):
    many = source.held_out(None, 300)
    assert len(many) == 300
    assert all(source.held_out(None, count) == many[:count] for count in (1, 2, 10, 299))
    assert source.held_out(7, 30) != many[:30]


def test_a_small_family_offers_all_its_held_out_problems():
    remainder = arithmetic_source(["remainder"])
    everything = [FAMILIES["remainder"].problem(number) for number in range(len(FAMILIES["remainder"]))]
    expected = {problem.id for problem in everything if is_held_out(problem)}
    assert {problem.id for problem in remainder.held_out(None, 10_000)} == expected


def test_families_are_drawn_evenly_and_only_as_configured():
    drawn = [problem.family for problem in ARITHMETIC.training(seed=0, start=0, count=3000)]
    assert all(900 < drawn.count(family) < 1100 for family in FAMILIES)
    only = arithmetic_source(["product"])
    assert {problem.family for problem in only.training(0, 0, 50)} == {"product"}


def test_addition_opens_the_box_in_its_prompt():
    problem = ADDITION.training(seed=0, start=0, count=1)[0]
    assert problem.prompt.endswith(problem.response_prefix)
    assert REWARD.grade(problem, f"{problem.answer}}}").is_right
    assert not REWARD.grade(problem, f"{problem.answer}").is_right


def test_problems_do_not_depend_on_pythons_hash_seed():
    code = (
        "from tasks.problems.arithmetic import FAMILIES, arithmetic_source; "
        "s = arithmetic_source(list(FAMILIES)); "
        "print([p.id for p in s.training(5, 7, 20) + s.held_out(None, 20)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    expected = [p.id for p in ARITHMETIC.training(5, 7, 20) + ARITHMETIC.held_out(None, 20)]
    assert outputs == {f"{expected}\n"}
