"""Problems from a JSONL file."""

import random
import zlib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from configs.loading import describe
from configs.problems import JsonlProblems, ProblemsConfig
from tasks.problems.base import DataError
from tasks.record.samples import Problem
from tasks.reward.base import Reward


def read_problems(path: Path, template: str, reward: Reward) -> list[Problem]:
    """Every problem of the file, in its order; `{problem}` in the template is replaced by its text.

    Blank lines are skipped; the same problem may stand in the file more than once.
    Raises DataError, one line with file and line number, for a line that is not such a problem, or whose
    answer the reward cannot take.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): give the path of a JSONL file") from None
    problems = [
        _parse(line, template, reward, where=f"{path}:{number}")
        for number, line in enumerate(data.split(b"\n"), start=1)
        if line.strip()
    ]
    if not problems:
        raise DataError(
            f"{path}: holds no problem: give a JSONL file with `problem` and `answer` on each line"
        )
    return problems


def prompt_template(config: ProblemsConfig) -> str:
    """The template by which a run turns the text of a foreign problem into a prompt."""
    if isinstance(config, JsonlProblems):
        return config.template
    return JsonlProblems.model_fields["template"].default


class JsonlSource:
    """Training goes through the file again and again, in a new order each time; see ProblemSource."""

    def __init__(self, config: JsonlProblems, reward: Reward) -> None:
        self._training: list[Problem] = []
        self._held_out: list[Problem] = []
        for problem in read_problems(config.path, config.template, reward):
            held_out = zlib.crc32(problem.prompt.encode()) < config.held_out_fraction * 2**32
            (self._held_out if held_out else self._training).append(problem)
        if not self._training:
            raise DataError(f"{config.path}: all problems are held out: lower problems.held_out_fraction")
        if not self._held_out:
            raise DataError(f"{config.path}: no problem is held out: raise problems.held_out_fraction")

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """Costs O(count) and a shuffle of the file for each pass over it that the draw touches."""
        size = len(self._training)
        passes = {n: self._shuffled(seed, n) for n in range(start // size, (start + count - 1) // size + 1)}
        return [passes[number // size][number % size] for number in range(start, start + count)]

    def held_out(self, seed: int | None, count: int) -> list[Problem]:
        """In the order of the file for None, in a random order for a seed."""
        if seed is None:
            return self._held_out[:count]
        shuffled = self._held_out.copy()
        random.Random(f"held-out/{seed}").shuffle(shuffled)
        return shuffled[:count]

    def _shuffled(self, seed: int, number: int) -> list[Problem]:
        shuffled = self._training.copy()
        random.Random(f"training/{seed}/{number}").shuffle(shuffled)
        return shuffled


def _to_text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be text or a number, not {str(value)[:40]!r}")
    return str(value)


class _Line(BaseModel):
    problem: str = Field(min_length=1)
    answer: Annotated[str, BeforeValidator(_to_text)]
    id: str | int | None = None


def _parse(line: bytes, template: str, reward: Reward, where: str) -> Problem:
    try:
        row = _Line.model_validate_json(line)
    except ValidationError as error:
        raise DataError(f"{where}: {describe(error)}") from None
    try:
        answer = reward.check_gold(row.answer)
    except ValueError as error:
        raise DataError(f"{where}: answer: {error}") from None
    number = where.rsplit(":", 1)[1]
    return Problem(
        id=number if row.id is None else str(row.id),
        prompt=template.replace("{problem}", row.problem),
        answer=answer,
    )
