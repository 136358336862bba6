"""The trainer as Ray actors: references in, typed errors out, and no rank left behind when it is lost."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from infra.home import Home
from infra.process import wait_until
from infra.process_group import join_group, leave_group
from infra.store.base import StoreError
from infra.weights_folder import WeightsMismatch
from tasks.model.stored import store_folder, stored_model
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.training.errors import CheckpointUnusable
from tasks.training.group import StepRefused, TrainerError, TrainerGroup, TrainerLost
from tests.support.training import graded_batch, single_trainer, stored, trainer_config

pytestmark = [pytest.mark.slow, pytest.mark.services]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """State folder of a running Ray cluster."""
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    yield tmp_path_factory.mktemp("home")
    ray.shutdown()


@pytest.fixture(scope="module")
def make_run(home: Path, model: Path) -> Iterator[Callable[..., Run]]:
    """Builds runs; their trainers are stopped at the end."""
    runs: list[Run] = []

    def make(run_id: str, **sections: dict[str, Any]) -> Run:
        runs.append(Run(id=run_id, config=trainer_config(model, **sections), home=Home(home)))
        store_folder(runs[-1], model)
        return runs[-1]

    yield make
    for run in runs:
        TrainerGroup(run, []).stop()


def pids(group: TrainerGroup) -> list[int]:
    """Process ids of the ranks."""
    return ray.get([actor.__ray_call__.remote(lambda _: os.getpid()) for actor in group._actors])


@pytest.fixture(scope="module")
def run(make_run: Callable[..., Run]) -> Run:
    """A run whose trainer has two tensor-parallel ranks."""
    return make_run("healthy", trainer={"tensor_parallel": 2}, publish={"bucket_mb": 0.02})


@pytest.fixture(scope="module")
def group(run: Run, model: Path) -> TrainerGroup:
    """That trainer, with the model loaded."""
    with pytest.raises(TrainerLost, match="0 of 2 trainer ranks of healthy are running"):
        TrainerGroup.connect(run)
    started = TrainerGroup.start(run)
    assert not started.alive()
    started.load()
    return started


def test_a_step_over_ray_is_the_step_of_one_process(run, group, model):
    assert TrainerGroup.connect(run).alive()
    report = group.train(1, stored(run, graded_batch(1)))
    with single_trainer(model) as alone:
        expected = alone.apply(1, graded_batch(1))
        scores = alone.score([[1, 2, 3, 4]])
    assert report.metrics == pytest.approx(expected.metrics, abs=1e-5, rel=1e-4)
    assert group.score([[1, 2, 3, 4]])[0] == pytest.approx(scores[0], abs=1e-5)
    assert group.train(1, stored(run, graded_batch(1))) == report

    group.save(run.checkpoint_key(1))
    hashed = group.content_hash()
    assert {path.name for path in run.store.local(run.checkpoint_key(1)).iterdir()} == {
        "index.json",
        "rank-000.pt",
        "rank-001.pt",
    }
    assert group.export().hash == hashed
    group.keep(run.weights_key(1))
    assert Manifest.of(load_file(run.store.local(run.weights_key(1)) / "model.safetensors")).hash == hashed
    group.train(2, stored(run, graded_batch(2)))
    assert group.content_hash() != hashed
    group.restore(run.checkpoint_key(1))
    assert (group.content_hash(), group.applied_step()) == (hashed, 1)


def test_refusals_leave_the_group_alive(make_run, tmp_path):
    run = make_run("gated", gates={"max_logprob_diff": 1e-6})
    group = TrainerGroup.start(run)
    group.load()
    with pytest.raises(StepRefused, match=r"gates\.max_logprob_diff") as refusal:
        group.train(1, stored(run, graded_batch(1)))
    assert "\n" not in str(refusal.value)
    with pytest.raises(TrainerError, match="was changed after it was stored"):
        group.train(1, stored(run, graded_batch(1))._replace(sha256="0" * 64))
    weights = stored_model(run) / "model.safetensors"
    weights.rename(tmp_path / "elsewhere")
    with pytest.raises(WeightsMismatch, match=r"model\.safetensors is missing"):
        group.load()
    shutil.move(tmp_path / "elsewhere", weights)
    assert group.alive()
    group.stop()
    with pytest.raises(TrainerLost):
        TrainerGroup.connect(run)


def test_buckets_reach_a_receiver(run, group):
    address, port = group.meeting_point()
    with ThreadPoolExecutor() as pool:
        opened = pool.submit(group.open_update_group, address, port, 2, "update")
        receiver = join_group(address, port, 2, 1, "update", "gloo", timeout_s=60)
        opened.result()
        received = {}
        for number, bucket in enumerate(group.buckets()):
            sent = pool.submit(group.broadcast_bucket, number)
            for spec in bucket:
                received[spec.name] = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype))
                dist.broadcast(received[spec.name], src=0, group=receiver)
            sent.result()
    group.close_update_group()
    leave_group(receiver)
    group.export()
    group.keep(run.weights_key(2))
    exported = load_file(run.store.local(run.weights_key(2)) / "model.safetensors")
    assert received.keys() == exported.keys()
    assert all(torch.equal(received[name], exported[name]) for name in exported)


def test_a_store_that_fails_one_rank_is_told_by_all_and_leaves_them_alive(make_run):
    run = make_run("unstored", trainer={"tensor_parallel": 2, "step_timeout_s": 20})
    group = TrainerGroup.start(run)
    group.load()
    hashed, blocked = group.content_hash(), run.store.folder(f"{run.id}/blocked")
    blocked.write_text("in the way of a folder")
    with pytest.raises(StoreError, match=r"store\.path .* cannot be used"):
        group.save(f"{run.id}/blocked/000001")
    group.export()
    with pytest.raises(StoreError, match=r"store\.path .* cannot be used"):
        group.keep(f"{run.id}/blocked/000001")
    with pytest.raises(CheckpointUnusable, match="000009: no such folder"):
        group.restore(run.checkpoint_key(9))
    assert group.alive() and group.content_hash() == hashed
    group.stop()


def strike(group: TrainerGroup, run: Run, blow: signal.Signals) -> None:
    """Strike rank 1 in the back of a healthy group; all of it must be gone within its deadline and a bit."""
    processes = [psutil.Process(pid) for pid in pids(group)]
    processes[1].send_signal(blow)
    started = time.monotonic()
    with pytest.raises(TrainerLost, match=f"trainer of {run.id} lost in train step 1"):
        group.train(1, stored(run, graded_batch(1)))
    assert time.monotonic() - started < 30
    wait_until(lambda: not any(process.is_running() for process in processes), 30, "the end of the ranks")
    with pytest.raises(TrainerLost):
        TrainerGroup.connect(run)


def test_a_dead_or_hung_rank_takes_the_group_with_it_and_a_new_one_starts(make_run, model):
    run = make_run("struck", trainer={"data_parallel": 2, "step_timeout_s": 8})
    for blow in (signal.SIGSTOP, signal.SIGKILL):
        group = TrainerGroup.start(run)
        group.load()
        strike(group, run, blow)
