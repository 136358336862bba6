"""What a report says of log-probabilities: how far, where, and whether that is in order."""

import pytest

from tasks.probe.compare import compare
from tasks.probe.probe import Probe
from tasks.probe.report import AlignmentReport, Misaligned

PROBE = Probe(sequences=[[7, 11, 12, 13], [7, 21, 22]], logprobs=[[-1.0, -2.0, -3.0], [-4.0, -5.0]])


def report(tolerance: float = 0.1, **engines: list[list[float]]) -> AlignmentReport:
    return compare(3, PROBE, engines, tolerance)


def test_an_equal_engine_is_aligned() -> None:
    found = report(one=PROBE.logprobs)
    found.require_aligned()
    assert (found.version, found.tokens, found.max, found.aligned) == (3, 5, 0, True)


def test_differences_are_told_over_all_tokens_and_by_the_worst() -> None:
    (engine,) = report(one=[[-1.0, -2.25, -3.0], [-3.5, -5.0]]).engines
    assert engine.mean == pytest.approx(0.75 / 5)
    assert engine.p99 == engine.max == 0.5  # of five tokens, the last reaches 99 %
    first, second = engine.worst[:2]
    assert (first.sequence, first.position, first.token) == (1, 1, 21)
    assert (first.trainer, first.engine, first.difference) == (-4.0, -3.5, 0.5)
    assert (second.sequence, second.position, second.token) == (0, 2, 12)


def test_the_error_names_the_farthest_engine_and_its_worst_token() -> None:
    found = report(near=[[-1.0, -2.2, -3.0], [-4.0, -5.0]], far=[[-1.0, -2.0, -3.0], [-4.0, -5.5]])
    with pytest.raises(Misaligned) as refusal:
        found.require_aligned()
    assert str(refusal.value) == (
        "log-probabilities of far differ from the trainer's by 0.5, more than publish.probe_tolerance 0.1: "
        "worst at token 22 (sequence 1, position 2): trainer -5, engine -5.5"
    )


def test_p99_leaves_one_token_of_a_hundred_out() -> None:
    probe = Probe(sequences=[[0] * 101], logprobs=[[-1.0] * 100])
    (engine,) = compare(0, probe, {"one": [[-1.0] * 98 + [-1.5, -3.0]]}, 0.1).engines
    assert (engine.p99, engine.max) == (0.5, 2.0)


def test_at_the_tolerance_is_within_it() -> None:
    report(0.5, one=[[-1.0, -2.0, -3.0], [-4.0, -5.5]]).require_aligned()


@pytest.mark.parametrize("order", [("broken", "far"), ("far", "broken")])
def test_what_is_not_a_number_is_the_worst(order: tuple[str, str]) -> None:
    scored = {
        "far": [[-9.0, -2.0, -3.0], [-4.0, -5.0]],
        "broken": [[-1.0, -2.0, float("nan")], [-4.0, -5.0]],
    }
    found = report(100, **{name: scored[name] for name in order})
    with pytest.raises(Misaligned, match=r"broken differ .* by nan.* token 13 \(sequence 0, position 3\)"):
        found.require_aligned()
    assert not found.aligned


def test_a_report_reads_back_equal_also_with_what_is_not_a_number() -> None:
    found = report(one=[[-1.0, -2.0, -3.0], [float("-inf"), -5.0]])
    assert AlignmentReport.model_validate_json(found.model_dump_json()) == found
