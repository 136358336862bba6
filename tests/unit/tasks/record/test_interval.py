"""What intervals cover of a window, whatever their order and however they overlap."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.record.interval import Interval, covered

WINDOW = Interval(10.0, 20.0)
intervals = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda ends: Interval(*ends))


def test_an_interval_is_as_long_as_it_is_and_never_less_than_nothing() -> None:
    assert Interval(3.0, 5.5).seconds == 2.5
    assert Interval(5.5, 3.0).seconds == 0  # a clock that was set back
    before = time.time()
    since = Interval.since(before)
    assert since.start == before <= since.end <= time.time()


@pytest.mark.parametrize(
    ("within", "seconds"),
    [
        ([], 0),
        ([(12, 15)], 3),
        ([(10, 20)], 10),
        ([(12, 14), (15, 16)], 3),
        ([(12, 15), (13, 17)], 5),  # overlapping: not 7
        ([(12, 18), (13, 14)], 6),  # one within the other: not 7, and not ended by the inner one
        ([(12, 18), (13, 14), (17, 19)], 7),
        ([(12, 14), (14, 16)], 4),
        ([(5, 12)], 2),
        ([(18, 25)], 2),
        ([(0, 30)], 10),
        ([(0, 10), (20, 30)], 0),
        ([(0, 5), (25, 30)], 0),
        ([(15, 12)], 0),  # ends before it starts
        ([(15, 12), (13, 16)], 3),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_what_is_covered(within: list[tuple[float, float]], seconds: float, turned: bool) -> None:
    given_ = [Interval(*ends) for ends in within]
    assert covered(reversed(given_) if turned else given_, WINDOW) == seconds


@given(st.lists(intervals, max_size=6), intervals)
def test_it_is_every_second_of_the_window_that_lies_in_one_of_them(
    within: list[Interval], window: Interval
) -> None:
    seconds = range(int(window.start), int(window.end))
    expected = sum(any(each.start <= second < each.end for each in within) for second in seconds)
    assert covered(within, window) == expected
