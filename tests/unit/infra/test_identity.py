"""A process is known again, also when the machine's clock was set right in the meantime."""

import os

import pytest

from infra.identity import ProcessRef


@pytest.mark.parametrize(("moved_s", "same"), [(0, True), (1, True), (-3, True), (1000, False)])
def test_creation_times_move_with_the_clock(moved_s: float, same: bool) -> None:
    me = ProcessRef.of(os.getpid())
    assert me.model_copy(update={"created": me.created + moved_s}).alive is same
