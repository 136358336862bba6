"""Problems made from two operands; every tenth by CRC32 of the prompt is held out."""

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

from tasks.record.samples import Problem

HELD_OUT_ONE_IN = 10


@dataclass(frozen=True)
class Family:
    """A finite set of problems, one for each pair of operands."""

    name: str
    first: range
    second: range
    prompt: Callable[[int, int], str]
    answer: Callable[[int, int], int]
    response_prefix: str = ""

    def __len__(self) -> int:
        return len(self.first) * len(self.second)

    def problem(self, number: int) -> Problem:
        """Problem `number` of the family, 0 <= number < len(self)."""
        row, column = divmod(number, len(self.second))
        a, b = self.first[row], self.second[column]
        return Problem(
            id=f"{self.name}-{a}-{b}",
            prompt=self.prompt(a, b),
            answer=str(self.answer(a, b)),
            response_prefix=self.response_prefix,
            family=self.name,
        )


def is_held_out(problem: Problem) -> bool:
    """Whether training must not see the problem."""
    return zlib.crc32(problem.prompt.encode()) % HELD_OUT_ONE_IN == 0


@dataclass(frozen=True)
class GeneratedSource:
    """Draws from families with equal weight; see ProblemSource."""

    families: Sequence[Family]

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """Each problem has a random stream of its own, so a draw costs O(count) wherever it starts."""
        return [
            self._draw(random.Random(f"training/{seed}/{number}")) for number in range(start, start + count)
        ]

    def held_out(self, seed: int | None, count: int) -> list[Problem]:
        """Distinct problems, the families in turn; a small family runs out before a large one."""
        queues = [self._held_out_of(family, seed, count) for family in self.families]
        in_turn = chain.from_iterable(zip_longest(*queues))
        return [problem for problem in in_turn if problem is not None][:count]

    def _draw(self, rng: random.Random) -> Problem:
        while True:
            family = rng.choice(self.families)
            problem = family.problem(rng.randrange(len(family)))
            if not is_held_out(problem):
                return problem

    def _held_out_of(self, family: Family, seed: int | None, count: int) -> list[Problem]:
        rng = random.Random(f"held-out/{seed}/{family.name}")
        candidates = (family.problem(number) for number in _permutation(len(family), rng))
        return list(islice(filter(is_held_out, candidates), count))


def _permutation(size: int, rng: random.Random) -> Iterator[int]:
    """0 .. size - 1 in random order, at a cost of what is taken (Fisher-Yates on a sparse array)."""
    moved: dict[int, int] = {}
    for position in range(size):
        chosen = rng.randrange(position, size)
        yield moved.get(chosen, chosen)
        moved[chosen] = moved.get(position, position)
