"""Whose turn it is: which of the nights that are due starts, waits, or is skipped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Literal
from uuid import UUID

Overlap = Literal["skip", "queue", "cancel"]


@dataclass(frozen=True)
class Night:
    """A flow run of the work pool that is due or going."""

    id: UUID
    name: str
    deployment: UUID | None
    """None for a run that no other makes up for, such as an evaluation."""
    due: datetime
    overlap: Overlap = "queue"
    """What happens when it is due while one of its deployment is going."""


@dataclass(frozen=True)
class Turns:
    """What to do now; nights that are in none of these wait."""

    start: Night | None = None
    skip: Mapping[UUID, str] = field(default_factory=dict)
    """Why each of these nights does not take place."""
    cancel: frozenset[UUID] = frozenset()


def take_turns(due: Sequence[Night], going: Sequence[Night]) -> Turns:
    """One night goes at a time, and of each deployment one at most waits.

    While a night is going, of each deployment the one that was due first waits, and none of its own when its
    `overlap` is skip. When none is going, the newest one due of a deployment makes up for those that were
    missed, and the deployment that was due first comes first.
    """
    if not due:
        return Turns()
    skip: dict[UUID, str] = {}
    cancel: set[UUID] = set()
    waiting: list[Night] = []
    for nights in _by_deployment(due):
        own = [night for night in going if night.deployment and night.deployment == nights[0].deployment]
        if own and nights[-1].overlap == "skip":
            skip |= {night.id: f"the night {own[0].name} is still going" for night in nights}
            continue
        if own and nights[-1].overlap == "cancel":
            cancel |= {night.id for night in own}
        kept = nights[0] if going else nights[-1]
        reason = f"the night {kept.name} " + ("waits already" if going else "makes up for it")
        skip |= {night.id: reason for night in nights if night is not kept}
        waiting.append(kept)
    first = None if going or not waiting else min(waiting, key=lambda night: night.due)
    return Turns(first, skip, frozenset(cancel))


def _by_deployment(nights: Sequence[Night]) -> list[list[Night]]:
    """The nights of each deployment by due time; runs of none are each by themselves."""
    ordered = sorted(nights, key=lambda night: (str(night.deployment or night.id), night.due))
    return [list(group) for _, group in groupby(ordered, key=lambda night: night.deployment or night.id)]
