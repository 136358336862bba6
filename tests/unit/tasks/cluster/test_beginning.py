"""A night's model is the version that it goes on from, to the bit."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from configs.loading import override
from infra.home import Home
from tasks.cluster.beginning import beginning_model
from tasks.model.stored import model_key, store_folder, stored_model
from tasks.publishing.export import ExportError
from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import save_report
from tasks.record.lineage import open_run
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.versions import stage_version
from tasks.record.weight_version import WeightVersion
from tasks.reporting.ledger import read_ledger
from tasks.training.update import initial_update
from tests.support.engines import TINY_MODEL
from tests.support.fakes import FakeTrainers
from tests.support.quantised import dequantised_copy, quantised_copy
from tests.support.s3 import S3Server

Nights = Callable[..., tuple[Run, Run]]


def put_version(run: Run, folder: Path, step: int) -> WeightVersion:
    """A model folder as a version of the run."""
    manifest = Manifest.of(load_file(folder / "model.safetensors"))
    version = stage_version(run, manifest, step - 1 if step else None, step)
    scratch = run.store.scratch()
    for path in folder.iterdir():
        (scratch / path.name).write_bytes(path.read_bytes())
    (scratch / "manifest.json").write_text(manifest.model_dump_json())
    run.store.upload(run.weights_key(version.number), scratch)
    return version


@pytest.fixture
def nights(
    modelled_run: Run, make_commit: Callable[..., StepCommit], make_report: Callable[..., EvaluationReport]
) -> Nights:
    """Two nights; the second goes on from the first's only step, whose weights are those of a folder."""

    def begin(folder: Path, *overrides: str, home: Home = modelled_run.home) -> tuple[Run, Run]:
        asked = override(modelled_run.config, ["loop.steps=1", *overrides])
        first = open_run(asked, home, None)
        for step in range(2):
            first.commits.append(make_commit(step, weights=put_version(first, folder, step)))
        save_report(first, make_report(1, "held-out"))
        return first, open_run(asked, home, None)

    return begin


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert Manifest.of(one) == Manifest.of(other)


def test_a_first_night_begins_with_the_model(modelled_run: Run) -> None:
    first = open_run(modelled_run.config, modelled_run.home, None)
    assert beginning_model(first) == store_folder(modelled_run, TINY_MODEL)


def test_a_night_begins_with_its_parent_and_keeps_it(nights: Nights) -> None:
    first, second = nights(TINY_MODEL)
    assert second.origin is not None and str(second.origin) == f"{first.id}@1"
    key = beginning_model(second)
    first.store.remove(first.weights_key(1))
    assert beginning_model(second) == model_key(second) == key
    assert_same(weights(stored_model(second)), weights(TINY_MODEL))
    assert (stored_model(second) / "tokenizer.json").is_file()


@pytest.mark.slow
def test_the_parent_may_be_on_s3(nights: Nights, s3: S3Server, tmp_path: Path) -> None:
    _, second = nights(TINY_MODEL, f"store={s3.config().model_dump_json()}")
    beginning_model(second)
    there = second.model_copy(update={"home": Home(tmp_path / "there")})
    assert_same(weights(stored_model(there)), weights(TINY_MODEL))


def test_of_quantised_weights_a_night_begins_with_those_that_engines_computed_with(
    nights: Nights, tmp_path: Path
) -> None:
    quantised = quantised_copy(TINY_MODEL, tmp_path / "quantised", "fp8_block")
    overrides = ("publish.format=fp8_block", "gates.max_logprob_diff=null")
    _, second = nights(quantised, *overrides)
    beginning_model(second)
    expected = dequantised_copy(quantised, tmp_path / "dequantised")
    assert_same(weights(stored_model(second)), weights(expected))
    again = quantised_copy(stored_model(second), tmp_path / "again", "fp8_block")
    assert second.origin is not None and Manifest.of(weights(again)).hash == second.origin.hash


def test_weights_that_are_not_the_parents_are_refused(nights: Nights) -> None:
    first, second = nights(TINY_MODEL)
    file = first.store.folder(first.weights_key(1)) / "model.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(ExportError, match="was changed since"):
        beginning_model(second)


def test_a_version_0_that_is_not_the_parent_ends_the_run(nights: Nights, trainers: FakeTrainers) -> None:
    _, second = nights(TINY_MODEL)
    trainers.start(second).load()  # of other weights
    with pytest.raises(
        Exception, match=rf"^run {second.id} goes on from .*@1 with hash \w+, but its version 0"
    ):
        initial_update(second)


def test_the_ledger_names_the_parent_of_version_0(
    nights: Nights, make_commit: Callable[..., StepCommit]
) -> None:
    first, second = nights(TINY_MODEL)
    for step in range(2):
        second.commits.append(make_commit(step, weights=put_version(second, TINY_MODEL, step)))
    initial, trained = read_ledger(second)
    assert initial.origin is not None and (initial.parent, trained.origin) == (None, None)
    assert (initial.origin.run_id, initial.origin.version) == (first.id, 1)
    assert initial.origin.hash == initial.hash == read_ledger(first)[1].hash
    assert [record.origin for record in read_ledger(first)] == [None, None]
