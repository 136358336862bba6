"""Weight versions: numbers only grow and belong to one set of weights."""

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch

from infra.store.base import KeyMissingError
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.stored import RecordUnreadable
from tasks.record.versions import read_manifest, read_version, stage_version
from tasks.record.weight_version import WeightVersion
from tests.support.versions import stage_tensors


def _weights(value: float) -> Manifest:
    return Manifest.of({"layer": torch.full((2, 3), float(value))})


def staged(run: Run, value: float, parent: int | None, step: int) -> int:
    """The number of the version that weights become."""
    return stage_version(run, _weights(value), parent, step).number


def test_numbers_count_up_from_zero(run: Run) -> None:
    assert [staged(run, step, step - 1 if step else None, step) for step in range(4)] == [0, 1, 2, 3]


def test_a_version_is_what_was_staged_and_is_kept(run: Run) -> None:
    staged(run, 0, None, 0)
    version = stage_version(run, _weights(1), 0, 4)
    assert version == WeightVersion(
        number=1, parent=0, step=4, hash=_weights(1).hash, bytes=24, format="float32"
    )
    assert read_version(run, 1) == version
    with pytest.raises(KeyMissingError):
        read_version(run, 2)


def test_a_version_names_the_number_format_of_its_run(run: Run, revised: Callable[..., Run]) -> None:
    quantised = revised(run, publish={"format": "fp8_block"})
    assert stage_version(quantised, _weights(0), None, 0).format == "fp8_block"
    assert read_version(quantised, 0).format == "fp8_block"


def test_the_manifest_lies_with_the_weights_and_goes_with_them(run: Run) -> None:
    version = stage_version(run, _weights(1), None, 0)
    with pytest.raises(KeyMissingError):
        read_manifest(run, version)  # the number is there before the weights are
    stage_tensors(run, {"layer": torch.ones(2, 3)}, 0)
    assert read_manifest(run, version) == _weights(1)
    run.store.remove(run.weights_key(0))
    with pytest.raises(KeyMissingError):
        read_manifest(run, version)
    assert read_version(run, 0) == version


def test_the_manifest_of_other_weights_is_one_line_that_names_both(run: Run) -> None:
    version = stage_tensors(run, {"layer": torch.ones(2, 3)}, 0)
    file = run.store.folder(run.weights_key(0)) / "manifest.json"
    file.write_text(_weights(2).model_dump_json())
    with pytest.raises(RecordUnreadable, match=r"weights/000000/manifest\.json has hash") as told:
        read_manifest(run, version)
    assert _weights(2).hash in str(told.value) and version.hash in str(told.value)
    assert "\n" not in str(told.value)


def test_staging_again_gives_the_same_number(run: Run) -> None:
    staged(run, 0, None, 0)
    assert [staged(run, 1, 0, 1) for _ in range(3)] == [1, 1, 1]
    assert staged(run, 0, None, 0) == 0


def test_other_weights_of_a_replayed_step_get_a_number_of_their_own(run: Run) -> None:
    staged(run, 0, None, 0)
    assert staged(run, 1, 0, 1) == 1
    assert staged(run, 2, 0, 1) == 2
    assert staged(run, 1, 0, 1) == 1
    assert staged(run, 3, 2, 2) == 3
    assert read_version(run, 1).hash == _weights(1).hash


def test_equal_weights_of_another_step_are_another_version(run: Run) -> None:
    staged(run, 0, None, 0)
    assert staged(run, 0, 0, 1) == 1


def test_threads_that_stage_at_once_share_no_number(run: Run) -> None:
    taken: list[tuple[float, int]] = []
    barrier = threading.Barrier(8)

    def stage(value: float) -> None:
        barrier.wait(timeout=10)
        taken.append((value, staged(run, value, None, 0)))

    racers = [threading.Thread(target=stage, args=(float(number // 2),)) for number in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=30)
    _assert_every_number_is_of_one_content(run, taken, contents=4)


def _assert_every_number_is_of_one_content(run: Run, taken: list[tuple[float, int]], contents: int) -> None:
    assert len(taken) == 2 * contents
    for value, version in taken:
        assert read_version(run, version).hash == _weights(value).hash
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
        "    print(value, stage_version(run, manifest, None, 0).number)\n"
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
        assert read_version(run, int(version)).hash == _weights(float(value)).hash
