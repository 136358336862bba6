"""The delta transport's life: made before a publish, copied on machines, forgotten with the cluster."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray
import torch

from infra.engines.client import EngineClient
from infra.weights_folder import WeightsFolder
from tasks.fleet.actors import named_actor
from tasks.fleet.engines import Engine, Fleet, stop_fleets
from tasks.probe.probe import Probe
from tasks.publishing.transports.base import Transport
from tasks.publishing.transports.staged import StagedVersion
from tasks.record.run import Run
from tasks.record.versions import read_manifest, read_version
from tests.support.versions import stage_tensors

pytestmark = [pytest.mark.slow, pytest.mark.services]


class Idle:
    """In place of an engine's actor."""

    def stop(self) -> None:
        """There is nothing to stop."""


class Loading(EngineClient):
    """Takes note of what an engine is to load."""

    def __init__(self) -> None:
        self.loads: list[tuple[Path, Path]] = []

    def update_from_disk(
        self, path: str | Path, flush_cache: bool = True, like: Path | WeightsFolder | None = None
    ) -> None:
        assert isinstance(like, Path)
        self.loads.append((Path(path), like))


@pytest.fixture
def staged(run: Run, revised: Callable[..., Run], tmp_path: Path) -> Iterator[Run]:
    """Versions 0 to 2 of a run whose copies have a folder of their own, and the actor of its engine."""
    run = revised(run, publish={"transport": {"kind": "delta", "mirror": str(tmp_path / "fast")}})
    for step in range(3):
        stage_tensors(run, {"layer": torch.arange(4096.0) + step / 1e4, "norm": torch.ones(4)}, step)
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    ray.get(named_actor(run, "engine-0", Idle).__ray_ready__.remote(), timeout=60)
    yield run
    stop_fleets(run)
    ray.shutdown()


def test_it_is_prepared_transferred_pruned_and_forgotten(staged: Run, tmp_path: Path) -> None:
    delta: Transport = staged.config.publish.transport.build()
    client, sent = Loading(), []
    for version in range(3):
        weights = read_version(staged, version)
        manifest = read_manifest(staged, weights)
        folder = staged.store.folder(staged.weights_key(version))
        prepared = delta.prepare(Fleet(staged), weights, held=True)
        bringing = StagedVersion(weights, folder, manifest, Probe(sequences=[], logprobs=[]))
        sent.append(prepared.transfer([Engine("engine-0", client)], bringing))
        copy = tmp_path / "fast" / staged.id / f"{version:06d}"
        assert prepared.name == "delta" and client.loads[-1] == (copy, folder) and copy.is_dir()
    assert 0 < sent[1] < sent[0] and 0 < sent[2] < sent[0]

    kept = {key.split("/")[2] for key in staged.store.list(f"{staged.id}/deltas")}
    delta.prune(staged, current=2)
    assert kept == {"000001", "000002"}
    assert {key.split("/")[2] for key in staged.store.list(f"{staged.id}/deltas")} == {"000002"}

    delta.forget(staged)
    assert not (tmp_path / "fast" / staged.id).exists()


def test_no_delta_is_made_of_a_version_that_the_trainer_did_not_just_make(staged: Run) -> None:
    staged.config.publish.transport.build().prepare(Fleet(staged), read_version(staged, 1), held=False)
    assert not staged.store.list(f"{staged.id}/deltas")
