"""Publishing to real engines: what is right is stamped, what is wrong is refused and named."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from configs.weights import PublishConfig
from infra.engines.client import SamplingParams
from tasks.fleet.engines import Engine
from tasks.probe.compare import compare
from tasks.probe.probe import Probe
from tasks.probe.report import Misaligned
from tasks.publishing.publish import PublishRefused, publish, score_all
from tasks.publishing.transports.disk import Loading
from tasks.publishing.transports.staged import StagedVersion
from tasks.record.manifest import Manifest
from tests.support.engines import TINY_MODEL, altered_copy, reference_logprobs, tiny_engine
from tests.support.versions import version_named

pytestmark = pytest.mark.slow
NORM = "model.norm.weight"
SEQUENCES = [[1, 40, 41, 42, 43, 44], [1, 60, 61, 62]]
CONFIG = PublishConfig()


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Engine]]:
    first, second = tmp_path_factory.mktemp("engine-0"), tmp_path_factory.mktemp("engine-1")
    with tiny_engine(first, version=0) as one, tiny_engine(second, version=0) as two:
        yield [Engine("engine-0", one), Engine("engine-1", two)]


def model_folder(folder: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Manifest:
    """Write a copy of the tiny model in which one tensor is changed; its manifest."""
    altered_copy(TINY_MODEL, folder, lambda each, tensor: change(tensor) if each == name else tensor)
    return Manifest.of(load_file(folder / "model.safetensors"))


def trainers_probe(folder: Path) -> Probe:
    """The probe as a trainer that holds the folder's weights gives it."""
    logprobs = [reference_logprobs(folder, sequence).tolist() for sequence in SEQUENCES]
    return Probe(sequences=SEQUENCES, logprobs=logprobs)


@pytest.fixture
def staged(tmp_path: Path) -> StagedVersion:
    """Version 5: the tiny model with another final norm."""
    folder = tmp_path / "000005"
    manifest = model_folder(folder, NORM, lambda norm: norm * 1.5)
    return StagedVersion(version_named(5, manifest), folder, manifest, trainers_probe(folder))


def stamps(engines: list[Engine]) -> list[str]:
    return [engine.client.model_info().weight_version for engine in engines]


def test_every_engine_holds_and_announces_the_version(engines: list[Engine], staged: StagedVersion) -> None:
    before = time.time()
    report = publish(engines, staged, Loading(), CONFIG)
    assert stamps(engines) == ["5", "5"]
    assert report.engine_hashes == {"engine-0": staged.manifest.hash, "engine-1": staged.manifest.hash}
    assert report.probe_abs_diff_max <= 1e-5
    copied = staged.manifest.bytes * len(engines)
    assert copied > 1_000_000
    assert report.gb_per_second == pytest.approx(copied / report.transfer_seconds / 1e9)
    assert before <= report.interval.start < report.interval.start + report.transfer_seconds
    assert report.transfer_seconds <= report.interval.seconds and report.interval.end <= time.time()
    (generation,) = engines[0].client.generate(
        [[1, 40, 41]], [SamplingParams(max_new_tokens=2, temperature=0)]
    )
    assert {span.version for span in generation.spans} == {5}


def test_other_weights_than_the_manifest_names_are_refused(
    engines: list[Engine], staged: StagedVersion, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    model_folder(wrong, NORM, lambda norm: norm * 1.5 + 1e-6)
    with pytest.raises(PublishRefused, match=r"version 5 refused: engine-0 holds 1 of .*model\.norm\.weight"):
        publish(engines, replace(staged, folder=wrong), Loading(), CONFIG)
    assert "5" not in stamps(engines)


def test_weights_that_are_not_the_trainers_are_refused_by_the_probe(
    engines: list[Engine], staged: StagedVersion, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    manifest = model_folder(wrong, NORM, lambda norm: norm * 1.6)
    agreed = replace(staged, folder=wrong, manifest=manifest)
    with pytest.raises(PublishRefused, match="differ from the trainer's"):
        publish(engines, agreed, Loading(), CONFIG)
    assert "5" not in stamps(engines)


def test_the_engine_that_is_off_is_named_with_its_worst_token(
    engines: list[Engine], staged: StagedVersion, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    model_folder(wrong, "model.layers.1.mlp.down_proj.weight", lambda weight: weight * 1.05)
    held = altered_copy(wrong, tmp_path / "held", lambda each, tensor: tensor * (1.5 if each == NORM else 1))
    for engine, folder in zip(engines, (staged.folder, held), strict=True):
        engine.client.update_from_disk(folder)
    report = compare(5, staged.probe, score_all(engines, SEQUENCES), CONFIG.probe_tolerance)
    aligned, off = report.engines
    assert aligned.max <= 1e-5
    assert off.max == off.worst[0].difference > CONFIG.probe_tolerance
    apart = [
        (reference_logprobs(held, tokens) - torch.tensor(logprobs)).abs()
        for tokens, logprobs in zip(SEQUENCES, staged.probe.logprobs, strict=True)
    ]
    sequence = max(range(len(apart)), key=lambda number: apart[number].max().item())
    position = int(apart[sequence].argmax()) + 1
    token = SEQUENCES[sequence][position]
    assert off.max == pytest.approx(apart[sequence].max().item(), abs=1e-5)
    place = rf"token {token} \(sequence {sequence}, position {position}\)"
    with pytest.raises(Misaligned, match=rf"of engine-1 differ .* worst at {place}"):
        report.require_aligned()


def test_weights_that_are_not_numbers_are_refused(
    engines: list[Engine], staged: StagedVersion, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    manifest = model_folder(broken, NORM, lambda norm: norm * float("nan"))
    with pytest.raises(PublishRefused, match="version 5 refused"):
        publish(engines, replace(staged, folder=broken, manifest=manifest), Loading(), CONFIG)
    assert "5" not in stamps(engines)


def test_no_engine_is_stamped_when_one_refuses(
    engines: list[Engine], staged: StagedVersion, tmp_path: Path
) -> None:
    class Half(Loading):
        def transfer(self, targets: list[Engine], version: StagedVersion) -> int:
            return super().transfer(targets[:1], version)  # the second keeps what it had

    publish(engines, replace(staged, weights=version_named(4, staged.manifest)), Loading(), CONFIG)
    other = tmp_path / "other"
    manifest = model_folder(other, NORM, lambda norm: norm * 0.7)
    new = StagedVersion(version_named(6, manifest), other, manifest, trainers_probe(other))
    with pytest.raises(PublishRefused, match="engine-1 holds 1 of"):
        publish(engines, new, Half(), CONFIG)
    assert "6" not in stamps(engines)
