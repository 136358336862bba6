"""Weight versions: numbers only grow, belong to one set of weights, and say what became of them."""

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch

from infra.store.base import KeyMissingError
from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import save_report
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.stored import RecordUnreadable
from tasks.record.versions import read_manifest, stage_version
from tasks.reporting.ledger import read_ledger


def _weights(value: float) -> Manifest:
    return Manifest.of({"layer": torch.full((2, 3), float(value))})


def test_numbers_count_up_from_zero(run: Run) -> None:
    assert [stage_version(run, _weights(step), step - 1 if step else None, step) for step in range(4)] == [
        0,
        1,
        2,
        3,
    ]


def test_what_was_staged_is_kept_with_every_tensor(run: Run) -> None:
    version = stage_version(run, _weights(1), None, 0)
    staged = read_manifest(run, version)
    assert staged.manifest == _weights(1)
    assert (staged.hash, staged.bytes, staged.step, staged.parent) == (_weights(1).hash, 24, 0, None)
    with pytest.raises(KeyMissingError):
        read_manifest(run, version + 1)


def test_staging_again_gives_the_same_number(run: Run) -> None:
    stage_version(run, _weights(0), None, 0)
    assert [stage_version(run, _weights(1), 0, 1) for _ in range(3)] == [1, 1, 1]
    assert stage_version(run, _weights(0), None, 0) == 0


def test_other_weights_of_a_replayed_step_get_a_number_of_their_own(run: Run) -> None:
    stage_version(run, _weights(0), None, 0)
    assert stage_version(run, _weights(1), 0, 1) == 1
    assert stage_version(run, _weights(2), 0, 1) == 2
    assert stage_version(run, _weights(1), 0, 1) == 1
    assert stage_version(run, _weights(3), 2, 2) == 3
    assert read_manifest(run, 1).hash == _weights(1).hash


def test_equal_weights_of_another_step_are_another_version(run: Run) -> None:
    stage_version(run, _weights(0), None, 0)
    assert stage_version(run, _weights(0), 0, 1) == 1


def test_threads_that_stage_at_once_share_no_number(run: Run) -> None:
    taken: list[tuple[float, int]] = []
    barrier = threading.Barrier(8)

    def stage(value: float) -> None:
        barrier.wait(timeout=10)
        taken.append((value, stage_version(run, _weights(value), None, 0)))

    racers = [threading.Thread(target=stage, args=(float(number // 2),)) for number in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=30)
    _assert_every_number_is_of_one_content(run, taken, contents=4)


def _assert_every_number_is_of_one_content(run: Run, taken: list[tuple[float, int]], contents: int) -> None:
    assert len(taken) == 2 * contents
    for value, version in taken:
        assert read_manifest(run, version).hash == _weights(value).hash
    assert len({version for _, version in taken}) >= contents


@pytest.mark.slow
def test_processes_that_stage_at_once_share_no_number(run: Run) -> None:
    program = (
        "import sys, torch\n"
        "from tasks.record.run import Run\n"
        "from tasks.record.versions import stage_version\n"
        "from tasks.record.manifest import Manifest\n"
        "run = Run.model_validate_json(sys.argv[1]); first = int(sys.argv[2])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for value in range(first, first + 20):\n"
        "    manifest = Manifest.of({'layer': torch.full((2, 3), float(value))})\n"
        "    print(value, stage_version(run, manifest, None, 0))\n"
    )
    stagers = [
        subprocess.Popen(
            [sys.executable, "-c", program, run.model_dump_json(), str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in (0, 100)
    ]
    for stager in stagers:
        assert stager.stdout is not None and stager.stdout.readline() == "ready\n"
    for stager in stagers:
        assert stager.stdin is not None
        stager.stdin.write("go\n")
        stager.stdin.flush()
    pairs = [line.split() for stager in stagers for line in stager.communicate(timeout=60)[0].splitlines()]
    assert sorted(int(version) for _, version in pairs) == list(range(40))
    for value, version in pairs:
        assert read_manifest(run, int(version)).hash == _weights(float(value)).hash


def test_an_empty_run_has_an_empty_ledger(run: Run) -> None:
    assert read_ledger(run) == []


def test_versions_are_staged_then_published_then_retired(
    run: Run, make_commit: Callable[..., StepCommit]
) -> None:
    for step in range(3):
        stage_version(run, _weights(step), step - 1 if step else None, step)
    run.commits.append(make_commit(0, weights_hash=_weights(0).hash))
    run.commits.append(make_commit(1, weights_hash=_weights(1).hash))
    assert [(r.version, r.parent, r.state) for r in read_ledger(run)] == [
        (0, None, "retired"),
        (1, 0, "published"),
        (2, 1, "staged"),
    ]


def test_a_replaced_try_of_a_step_stays_staged(run: Run, make_commit: Callable[..., StepCommit]) -> None:
    for value, step in ((0, 0), (1, 1), (2, 1)):
        stage_version(run, _weights(value), 0 if step else None, step)
    run.commits.append(make_commit(0, weights_hash=_weights(0).hash))
    run.commits.append(make_commit(1, version=2, weights_hash=_weights(2).hash))
    assert [r.state for r in read_ledger(run)] == ["retired", "staged", "published"]


def test_a_record_says_how_the_version_was_published_and_did(
    run: Run, make_commit: Callable[..., StepCommit]
) -> None:
    for step in range(3):
        run.commits.append(make_commit(step))
    initial, first, second = read_ledger(run)
    assert (second.reward, second.divergence) == (0.42, 2e-6)
    assert (initial.reward, initial.divergence) == (first.reward, first.divergence) == (0.41, 1e-6)
    assert second.engines == {"engine-0": second.hash}
    assert (second.recipe, second.bytes, second.seconds, second.gb_per_second) == (
        "float32/disk",
        1_500_000,
        0.5,
        0.003,
    )
    assert (second.probe_abs_diff_max, second.checkpoint) == (1e-6, "unit-1/checkpoints/000002")


def test_a_record_holds_the_evaluations_of_its_version(
    run: Run, make_commit: Callable[..., StepCommit], make_report: Callable[..., EvaluationReport]
) -> None:
    run.commits.append(make_commit(0))
    run.commits.append(make_commit(1))
    save_report(run, make_report(1, "held-out", avg_at_k=0.6))
    save_report(run, make_report(1, "aime", avg_at_k=0.1))
    initial, first = read_ledger(run)
    assert initial.evaluation is None
    assert first.evaluation is not None
    assert first.evaluation["eval/held-out/avg_at_k"] == 0.6
    assert first.evaluation["eval/aime/avg_at_k"] == 0.1


def test_a_commit_of_other_weights_than_staged_is_noticed(
    run: Run, make_commit: Callable[..., StepCommit]
) -> None:
    stage_version(run, _weights(0), None, 0)
    run.commits.append(make_commit(0, weights_hash="something else"))
    with pytest.raises(RecordUnreadable, match="version 0 was staged with hash"):
        read_ledger(run)
