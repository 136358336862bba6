"""Whose turn it is, as a function of what is due and what is going."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from infra.services.turns import Night, Overlap, Turns, take_turns

START = datetime(2026, 12, 1, 1, tzinfo=UTC)
A, B = uuid4(), uuid4()


def night(deployment: UUID, minute: int, overlap: Overlap = "skip") -> Night:
    return Night(uuid4(), f"night {minute}", deployment, START + timedelta(minutes=minute), overlap)


def test_nothing_due_is_nothing_to_do() -> None:
    assert take_turns([], [night(A, 0)]) == Turns()


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
def test_of_the_missed_nights_of_a_deployment_the_newest_starts_and_the_others_say_so(
    overlap: Overlap,
) -> None:
    missed = [night(A, minute, overlap) for minute in (2, 0, 1)]
    turns = take_turns(missed, [])
    assert turns.start == missed[0]
    assert set(turns.skip) == {missed[1].id, missed[2].id}
    assert set(turns.skip.values()) == {"the night night 2 makes up for it"}


def test_skip_names_the_night_that_is_going() -> None:
    due = night(A, 1)
    turns = take_turns([due], [night(A, 0)])
    assert turns == Turns(skip={due.id: "the night night 0 is still going"})


def test_of_queued_nights_the_one_that_was_due_first_waits() -> None:
    first, second = night(A, 1, "queue"), night(A, 2, "queue")
    turns = take_turns([second, first], [night(A, 0, "queue")])
    assert turns == Turns(skip={second.id: "the night night 1 waits already"})
    assert take_turns([first], []).start == first


def test_cancel_ends_the_night_that_is_going_and_waits_for_its_end() -> None:
    going, due = night(A, 0, "cancel"), night(A, 1, "cancel")
    assert take_turns([due], [going]) == Turns(cancel=frozenset({going.id}))


def test_a_night_of_another_deployment_waits_for_its_turn_and_is_not_overtaken() -> None:
    first, second = night(B, 1), night(A, 2)
    assert take_turns([first], [night(A, 0)]) == Turns()
    assert take_turns([second, first], []).start == first


def test_runs_that_are_no_nights_each_get_a_turn() -> None:
    due = [Night(uuid4(), "evaluation", None, START + timedelta(minutes=minute)) for minute in (1, 0)]
    assert take_turns(due, [Night(uuid4(), "evaluation", None, START)]) == Turns()
    assert take_turns(due, []) == Turns(start=due[1])
