"""An engine whose state went stale in a publish: caught in that publish, and named, wherever it strikes."""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from configs.weights import PublishConfig
from tasks.fleet.engines import Engine
from tasks.probe.probe import Probe
from tasks.publishing.publish import PublishRefused, publish
from tasks.publishing.transports.staged import StagedVersion
from tasks.publishing.transports.tensor import Sending
from tasks.record.manifest import Manifest
from tests.support.engines import altered_copy, reference_logprobs
from tests.support.faulty_engine import FaultyEngine, Tensors, faulty_engine
from tests.support.models import MODELS, save_model
from tests.support.quantised import quantised_copy
from tests.support.versions import version_named

pytestmark = pytest.mark.slow
TRIALS = 100
CONFIG = PublishConfig(format="fp8_channel")
"""Whose tolerance of what the trainer gives is wide: what is refused is so for another reason."""
BUCKET_BYTES = 2**16
CHANGE = 0.02
"""Standard deviation of what the new weights differ by, relative to that of each tensor."""
SEQUENCES = [[1, 40, 41, 42, 43, 44], [7, 8, 9, 10, 11, 12, 13, 14]]


@dataclass(frozen=True)
class Scene:
    """An engine with a fault, what it holds at first, and what is published to it."""

    faulty: FaultyEngine
    old: Tensors
    staged: StagedVersion

    def publish(self) -> None:
        """Publish the staged version by a transport of several buckets."""
        publish([Engine("faulty", self.faulty.client)], self.staged, Sending(BUCKET_BYTES), CONFIG)


@contextmanager
def scene_in(folder: Path, alike: Callable[[Path, str], Path]) -> Iterator[Scene]:
    """A tiny mixture of experts, and a version in which every tensor is another.

    `alike` gives what an engine is to serve of a plain folder, under a new name.
    """
    plain = save_model(MODELS["qwen3-moe"], folder / "plain")
    torch.manual_seed(1)
    changed = altered_copy(plain, folder / "changed", lambda _, t: t + CHANGE * t.std() * torch.randn_like(t))
    old, new = alike(plain, "old"), alike(changed, "new")
    manifest = Manifest.of(load_file(new / "model.safetensors"))
    logprobs = [reference_logprobs(changed, sequence).tolist() for sequence in SEQUENCES]
    staged = StagedVersion(
        version_named(5, manifest), new, manifest, Probe(sequences=SEQUENCES, logprobs=logprobs)
    )
    with faulty_engine(old) as faulty:
        yield Scene(faulty, load_file(old / "model.safetensors"), staged)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A model whose folder is plain."""
    with scene_in(tmp_path_factory.mktemp("models"), lambda folder, _: folder) as scene:
        yield scene


@pytest.fixture(scope="module")
def quantised_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The model in fp8, with a scale for each row of a weight."""
    folder = tmp_path_factory.mktemp("models")
    with scene_in(folder, lambda plain, name: quantised_copy(plain, folder / name, "fp8_channel")) as scene:
        yield scene


Fault = Callable[[Scene, random.Random], str]
"""Sets the fault up somewhere; what the refusal must say of it."""


def keeps_a_tensor(scene: Scene, rng: random.Random) -> str:
    name = rng.choice(sorted(scene.staged.manifest.tensors))
    scene.faulty.alter = lambda tensors: {each: t for each, t in tensors.items() if each != name}
    return f"holds 1 of {len(scene.old)} tensors that differ from the manifest (first: {name})"


def applies_half_the_buckets(scene: Scene, rng: random.Random) -> str:
    skipped: list[str] = []
    turns = iter(rng.sample([True, False], 2) * len(scene.old))

    def alter(tensors: Tensors) -> Tensors:
        if next(turns):
            return tensors
        skipped.extend(tensors)
        return {}

    scene.faulty.alter = alter
    return "tensors that differ from the manifest"


def swaps_two_experts(scene: Scene, rng: random.Random) -> str:
    experts = {name.rpartition(".experts.")[0] for name in scene.old if ".experts." in name}
    layer = rng.choice(sorted(experts))
    one, other = (f"{layer}.experts.{number}." for number in rng.sample(range(4), 2))
    swapped = {one: other, other: one}

    def renamed(name: str) -> str:
        module = name[: len(one)]
        return swapped.get(module, module) + name[len(one) :]

    scene.faulty.alter = lambda tensors: {renamed(name): tensor for name, tensor in tensors.items()}
    return f"holds 6 of {len(scene.old)} tensors that differ from the manifest (first: {min(one, other)}"


def loads_nothing(scene: Scene, rng: random.Random) -> str:
    scene.faulty.alter = lambda tensors: {}
    return f"holds {len(scene.old)} of {len(scene.old)} tensors that differ from the manifest"


def keeps_a_prefix(scene: Scene, rng: random.Random) -> str:
    sequence = rng.choice(SEQUENCES)
    scene.faulty.kept_prefixes = {tuple(sequence): rng.randint(1, 3)}
    return "goes on from keys and values of older weights"


def keeps_a_scale(scene: Scene, rng: random.Random) -> str:
    name = rng.choice([name for name in sorted(scene.old) if name.endswith("_scale")])
    scene.faulty.alter = lambda tensors: {n: scene.old[n] if n == name else t for n, t in tensors.items()}
    return f"holds 1 of {len(scene.old)} tensors that differ from the manifest (first: {name})"


def assert_refused_and_named(scene: Scene, fault: Fault) -> None:
    """In every trial, with the fault somewhere else."""
    rng = random.Random(fault.__name__)
    for _ in range(TRIALS):
        scene.faulty.heal(scene.old)
        said = fault(scene, rng)
        with pytest.raises(PublishRefused, match=f"version 5 refused: .*faulty .*{re.escape(said)}"):
            scene.publish()
        assert scene.faulty.model.version != "5"


@pytest.mark.parametrize(
    "fault", [keeps_a_tensor, applies_half_the_buckets, swaps_two_experts, loads_nothing, keeps_a_prefix]
)
def test_what_went_stale_is_refused_and_named(scene: Scene, fault: Fault) -> None:
    assert_refused_and_named(scene, fault)


def test_a_scale_that_went_stale_is_refused_and_named(quantised_scene: Scene) -> None:
    assert_refused_and_named(quantised_scene, keeps_a_scale)


@pytest.mark.parametrize("name", ["scene", "quantised_scene"])
def test_without_a_fault_nothing_is_refused(name: str, request: pytest.FixtureRequest) -> None:
    scene = request.getfixturevalue(name)
    scene.faulty.heal(scene.old)
    scene.publish()
    assert scene.faulty.model.version == "5"
