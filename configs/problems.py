"""Which problems the policy practises on, and how a problem becomes a prompt."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from configs.base import LocalPath, Section
from configs.form import Buttons


class ArithmeticProblems(Section):
    """Generated three-family integer arithmetic with worked solutions; a fixed part is held out by CRC32."""

    kind: Literal["arithmetic"]
    families: tuple[Literal["sum", "product", "remainder"], ...] = Field(
        default=("sum", "product", "remainder"), min_length=1
    )
    """Families to draw from, uniformly."""


class AdditionProblems(Section):
    r"""Generated two-digit additions behind three worked examples; the prompt ends in `\boxed{`."""

    kind: Literal["few_shot_addition"]


class JsonlProblems(Section):
    """A JSONL file, one object a line with `problem`, `answer` (text or a number) and optionally `id`.

    The run's reward says which answers it can grade by.
    """

    kind: Literal["jsonl"]
    path: LocalPath
    """The file."""
    template: str = "Problem: {problem}\nSolution:"
    """The prompt; `{problem}` is replaced by the problem's text."""
    held_out_fraction: float = Field(default=0.1, gt=0, lt=1)
    """Share of the problems, chosen by CRC32 of the prompt, that training never sees."""

    @field_validator("template")
    @classmethod
    def _shows_the_problem(cls, template: str) -> str:
        if "{problem}" not in template:
            raise ValueError("does not show the problem: write {problem} where its text belongs")
        return template


ProblemsConfig = Annotated[
    ArithmeticProblems | AdditionProblems | JsonlProblems, Field(discriminator="kind"), Buttons()
]
