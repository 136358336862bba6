"""A run whose engines hold quantised weights, begun and gone on with."""

import pytest

from configs.weights import TOLERANCES
from tests.support.command import Overnight

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(600)]
EVALUATION = "evaluation={problems: 20, samples: 1, at_start: false}"


def test_versions_are_quantised_and_only_changes_travel_before_and_after_a_resume(
    overnight: Overnight,
) -> None:
    settings = ("loop.steps=1", "publish.transport=delta", EVALUATION)
    overnight.run_config("tiny-fp8-cpu.yaml", "quantised", *settings)
    overnight.json("resume", "quantised", "--set", "loop.steps=2")
    ledger = overnight.json("ledger", "quantised")
    assert [record["version"] for record in ledger] == [0, 1, 2]
    for record in ledger:
        assert record["recipe"] == "fp8_channel/delta"
        assert record["engines"] == {"engine-0": record["hash"]}
        assert 1e-4 < record["probe_abs_diff_max"] <= TOLERANCES["fp8_channel"]
    assert 1e-4 < ledger[2]["divergence"] < 0.1
    first, *others = ledger
    assert first["sent_bytes"] > first["bytes"]  # the whole folder
    assert all(record["sent_bytes"] < 0.7 * record["bytes"] for record in others)
