"""Where the time of a step went: what is worked at or waited for is no overhead, and none counts twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.committing.times import step_times
from tasks.record.interval import Interval

GRADE, TRAIN, STAGE, PUBLISH = (
    Interval(14, 14.5),
    Interval(14.5, 17),
    Interval(17, 17.25),
    Interval(17.5, 18),
)
AFTER_GENERATION = {"grade": GRADE, "train": TRAIN, "stage": STAGE, "publish": PUBLISH}
WINDOW = Interval(9, 18.5)


def overhead(generate: Interval | None, beside: Interval | None = None, window: Interval = WINDOW) -> float:
    stages = AFTER_GENERATION if generate is None else {"generate": generate, **AFTER_GENERATION}
    return step_times(stages, beside, window)["time/overhead"]


def test_stages_that_follow_each_other_leave_the_gaps_between_them() -> None:
    stages = {"generate": Interval(10, 13.75), **AFTER_GENERATION}
    assert step_times(stages, None, WINDOW) == {
        "time/step": 9.5,
        "time/generate": 3.75,
        "time/grade": 0.5,
        "time/train": 2.5,
        "time/stage": 0.25,
        "time/publish": 0.5,
        "time/overhead": 2.0,  # before generating, then before grading, publishing and the commit
    }


def test_a_stage_that_did_not_work_took_no_time() -> None:
    times = step_times({"stage": Interval(1, 2), "publish": Interval(2, 4)}, None, Interval(0, 5))
    assert (times["time/generate"], times["time/grade"], times["time/train"]) == (0, 0, 0)
    assert times["time/overhead"] == 2


def test_a_batch_that_was_generated_beside_the_step_before_covers_nothing_of_this_one() -> None:
    earlier = Interval(2, 8)
    assert overhead(earlier) == overhead(None) == 9.5 - 3.75
    times = step_times({"generate": earlier, **AFTER_GENERATION}, None, WINDOW)
    assert times["time/generate"] == 6  # it was no less work


@pytest.mark.parametrize(
    ("beside", "left"),
    [
        (Interval(14.5, 16), 5.75),  # within training, which took longer
        (Interval(14.5, 17.5), 5.5),  # waited for between staging and publishing: no overhead
        (Interval(14.5, 17.25), 5.75),
        (Interval(14.5, 18.5), 5.0),  # beside all that is left of the step
    ],
)
def test_the_next_batch_beside_training_is_no_overhead_nor_is_waiting_for_it(
    beside: Interval, left: float
) -> None:
    assert overhead(None, beside) == left


def test_what_was_found_in_the_store_was_not_worked_at_beside_the_step() -> None:
    assert overhead(None, beside=None) == 5.75


stages = st.dictionaries(
    st.sampled_from(["generate", "grade", "train", "stage", "publish"]),
    st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda ends: Interval(*ends)),
)


@given(stages, st.integers(0, 40), st.integers(0, 20))
def test_overhead_is_a_part_of_the_step(stages: dict[str, Interval], start: int, seconds: int) -> None:
    times = step_times(stages, None, Interval(start, start + seconds))
    assert 0 <= times["time/overhead"] <= times["time/step"] == seconds
