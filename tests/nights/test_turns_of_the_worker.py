"""Real worker, real server, nights that only sleep: who goes, who waits and who is skipped."""

import pytest

from tests.support.nights import Nights
from tests.support.sleeper import deploy, schedule, sleeper

pytestmark = [pytest.mark.slow, pytest.mark.services]


def test_one_night_makes_up_for_those_missed(nights: Nights) -> None:
    worker = nights.service("worker")
    worker.suspend()
    missed = schedule(deploy(sleeper, "missed", seconds=0, night={}), 180, 120, 60)
    worker.resume()
    nights.wait_for(missed[-1], "Completed", timeout_s=60)
    assert [nights.state(each) for each in missed] == ["Skipped", "Skipped", "Completed"]
    assert "makes up for it" in nights.read(missed[0])["state"]["message"]


@pytest.mark.parametrize(
    ("overlap", "ends"),
    [
        ("queue", ["Completed", "Completed", "Skipped"]),
        ("cancel", ["Cancelled", "Completed", "Skipped"]),
    ],
)
def test_of_three_that_overlap_each_ends_in_a_stated_state(
    overlap: str, ends: list[str], nights: Nights
) -> None:
    deployment = deploy(sleeper, overlap, seconds=15, night={"overlap": overlap})
    (first,) = schedule(deployment, 0)
    nights.wait_for(first, "Running", timeout_s=60)
    others = schedule(deployment, 0.02, 0.01)
    for night, end in zip([first, *others], ends, strict=True):
        nights.wait_for(night, end, timeout_s=90)
