r"""Two-digit additions behind three worked examples; the prompt itself opens `\boxed{`.

A small language model without any training in this format answers it well enough to learn from.
"""

from tasks.problems.generated import Family, GeneratedSource

_EXAMPLES = "12 + 5 = \\boxed{17}\n34 + 23 = \\boxed{57}\n8 + 47 = \\boxed{55}\n"


def addition_source() -> GeneratedSource:
    r"""Sums of 10..99 and 2..99. Generation should stop at `}`."""
    family = Family(
        "addition",
        range(10, 100),
        range(2, 100),
        lambda a, b: rf"{_EXAMPLES}{a} + {b} = \boxed{{",
        lambda a, b: a + b,
        response_prefix=r"\boxed{",
    )
    return GeneratedSource([family])
