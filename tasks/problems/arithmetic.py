r"""Three families of integer arithmetic with answers from 0 to 999, and how each is worked out.

The texts are part of the shipped warm start (`configs/models/tiny-arithmetic`), which was trained on them.
"""

import re
from collections.abc import Sequence

from tasks.problems.generated import Family, GeneratedSource
from tasks.record.samples import Problem


def arithmetic_source(families: Sequence[str]) -> GeneratedSource:
    """A source of the named families, of FAMILIES."""
    return GeneratedSource([FAMILIES[name] for name in families])


def worked_solution(problem: Problem) -> str:
    r"""A response that works the problem out step by step and ends in `\boxed{answer}`."""
    a, b = (int(digits) for digits in re.findall(r"\d+", problem.prompt)[:2])
    return f" {_WORK[problem.family](a, b)} {boxed(problem.answer)}"


def boxed(answer: str) -> str:
    r"""`\boxed{answer}`."""
    return rf"\boxed{{{answer}}}"


def _ask(question: str) -> str:
    return f"Problem: {question}\nSolution:"


def _work_sum(a: int, b: int) -> str:
    """Column by column from the ones, with carries: `5+7=12, 1+2+1=4, 3+4=7.`"""
    columns, carry = [], 0
    for x, y in zip(reversed(str(a)), reversed(str(b)), strict=True):
        total = int(x) + int(y) + carry
        carried = f"+{carry}" if carry else ""
        columns.append(f"{x}+{y}{carried}={total}")
        carry = total // 10
    return ", ".join(columns) + "."


def _work_product(a: int, b: int) -> str:
    """Ones, then tens with the carry: `7*8=56, 4*8+5=37.`"""
    tens, ones = divmod(a, 10)
    carry = ones * b // 10
    carried = f"+{carry}" if carry else ""
    return f"{ones}*{b}={ones * b}, {tens}*{b}{carried}={tens * b + carry}."


def _work_remainder(n: int, m: int) -> str:
    """The largest multiple below, then the difference: `7*9=63, 68-63=5.`"""
    multiple = n // m * m
    return f"{m}*{n // m}={multiple}, {n}-{multiple}={n - multiple}."


FAMILIES = {
    "sum": Family(
        "sum",
        range(100, 1000),
        range(100, 1000),
        lambda a, b: _ask(f"Find the remainder when {a} + {b} is divided by 1000."),
        lambda a, b: (a + b) % 1000,
    ),
    "product": Family(
        "product",
        range(12, 100),
        range(3, 10),
        lambda a, b: _ask(rf"Find the value of {a} \cdot {b}."),
        lambda a, b: a * b,
    ),
    "remainder": Family(
        "remainder",
        range(20, 100),
        range(3, 10),
        lambda n, m: _ask(f"Let N = {n}. Find the remainder when N is divided by {m}."),
        lambda n, m: n % m,
    ),
}

_WORK = {"sum": _work_sum, "product": _work_product, "remainder": _work_remainder}
