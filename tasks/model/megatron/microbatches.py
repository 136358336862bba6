"""From samples to padded microbatches of fixed composition."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

PAD = 0


@dataclass(frozen=True)
class Row:
    """Tokens of which tokens[first:] are scored, at places [offset, offset + count) of a flat batch."""

    tokens: tuple[int, ...]
    first: int
    offset: int

    @property
    def count(self) -> int:
        """Number of scored tokens."""
        return len(self.tokens) - self.first


class Microbatch(NamedTuple):
    """One forward pass: B right-padded sequences of T tokens, of which N tokens are scored."""

    tokens_BT: Tensor
    positions_N: Tensor
    """Places in the flattened B * T logits that predict the scored tokens."""
    targets_N: Tensor
    """The scored tokens."""
    places_N: Tensor
    """Their places in the flat batch."""


def to_rows(sequences: Sequence[tuple[tuple[int, ...], int]]) -> list[Row]:
    """Rows of (tokens, index of the first scored token), laid out one after the other in the flat batch.

    ValueError when a sequence is scored from its first token, which nothing predicts.
    """
    rows, offset = [], 0
    for number, (tokens, first) in enumerate(sequences):
        if first < 1:
            raise ValueError(f"sequence {number} has no token before its first scored one: give it a prompt")
        row = Row(tokens, first, offset)
        rows.append(row)
        offset += max(row.count, 0)
    return rows


def deal(rows: Sequence[Row], budget: int, rank: int, ranks: int) -> list[Microbatch]:
    """The microbatches of one of `ranks` data-parallel ranks, at most `budget` tokens each, padding included.

    Rows are sorted by length, dealt round-robin, and cut greedily, so that the composition is a function of
    the arguments alone. A single longer sequence makes a microbatch of its own; rows without a scored token
    are left out.
    """
    scored = [row for row in rows if row.count > 0]
    mine = sorted(scored, key=lambda row: (len(row.tokens), row.offset))[rank::ranks]
    microbatches: list[Microbatch] = []
    current: list[Row] = []
    for row in mine:
        if current and (len(current) + 1) * len(row.tokens) > budget:
            microbatches.append(_collate(current))
            current = []
        current.append(row)
    return [*microbatches, _collate(current)] if current else microbatches


def idle_microbatch() -> Microbatch:
    """A pass that scores nothing, for a data-parallel rank that got no rows but has to join collectives."""
    empty = torch.empty(0, dtype=torch.long)
    return Microbatch(torch.full((1, 1), PAD), empty, empty, empty)


def _collate(rows: Sequence[Row]) -> Microbatch:
    width = max(len(row.tokens) for row in rows)
    tokens_BT = torch.tensor([[*row.tokens, *[PAD] * (width - len(row.tokens))] for row in rows])
    starts = [index * width + row.first - 1 for index, row in enumerate(rows)]
    return Microbatch(
        tokens_BT,
        positions_N=_ranges(starts, rows),
        targets_N=torch.tensor([token for row in rows for token in row.tokens[row.first :]]),
        places_N=_ranges([row.offset for row in rows], rows),
    )


def _ranges(starts: Sequence[int], rows: Sequence[Row]) -> Tensor:
    return torch.cat(
        [torch.arange(start, start + row.count) for start, row in zip(starts, rows, strict=True)]
    )
