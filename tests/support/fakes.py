"""A trainer and engines whose weights are one number, for tests of what is built on them.

They override the real classes, so that a type checker compares their signatures. Folders, hashes and
manifests are real.
"""

import json
import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from infra.engines.client import (
    UNSTAMPED,
    EngineClient,
    EngineError,
    EngineFailed,
    EngineRefused,
    EngineTimeout,
    EngineUnreachable,
    ModelInfo,
    RankChecksums,
)
from infra.engines.protocol import PauseMode
from infra.engines.tensors import PackedBucket, unpack
from infra.store.base import KeyMissingError
from infra.weights_folder import WeightsFolder
from tasks.fleet.engines import Engine
from tasks.model.bridge.buckets import TensorSpec
from tasks.model.errors import TrainerError
from tasks.record.manifest import Manifest, overall_hash, tensor_hash
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.training.errors import CheckpointUnusable, StepOutOfOrder, TrainerLost
from tasks.training.report import TrainReport
from tasks.training.trainer import Trainer

INITIAL = 1.0
"""The weights that `load` gives."""
_LAYER = "layer.weight"
_DEADLINE_S = 0.3
"""How long one side of a broadcast waits for the other."""


def tensors_of(weights: float) -> dict[str, torch.Tensor]:
    """The tensors that stand for a number."""
    return {_LAYER: torch.full((2, 3), weights), "norm.weight": torch.full((4,), weights / 2)}


def hash_of(weights: float) -> str:
    """Content hash of the tensors that stand for a number."""
    return Manifest.of(tensors_of(weights)).hash


def trained(weights: float, batch: BatchRef) -> float:
    """What a step on a batch makes of the weights; the order of the batches matters."""
    return (3 * weights + int(batch.sha256[-4:], 16)) % 9973


class Wire:
    """The process groups between a trainer and engines: a queue for each engine that joined."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[int, queue.Queue[torch.Tensor]]] = {}
        self._joined: queue.Queue[str] = queue.Queue()

    def join(self, group: str, rank: int) -> None:
        """An engine is there."""
        self._queues.setdefault(group, {})[rank] = queue.Queue()
        self._joined.put(group)

    def meet(self, engines: int) -> None:
        """Wait until so many engines have joined; queue.Empty when they do not."""
        for _ in range(engines):
            self._joined.get(timeout=_DEADLINE_S)

    def send(self, group: str, tensor: torch.Tensor) -> None:
        """Broadcast to every engine of the group."""
        for receiver in self._queues[group].values():
            receiver.put(tensor)

    def receive(self, group: str, rank: int) -> torch.Tensor:
        """The next tensor; queue.Empty when none comes."""
        return self._queues[group][rank].get(timeout=_DEADLINE_S)


class FakeTrainer(Trainer):
    """Weights are a number, and a step applies `trained`. `faults` are raised once, by method name."""

    def __init__(self, run: Run, wire: Wire | None = None) -> None:
        self.run = run
        self.weights: float | None = None
        self.step = 0
        self.lost = False
        self.group: str | None = None
        self.faults: dict[str, TrainerError] = {}
        self.applied: list[tuple[int, BatchRef, int | None]] = []
        """Step, batch and version of every optimizer step."""
        self.restored: list[str] = []
        self._exported: Path | None = None
        self._wire = wire or Wire()

    def alive(self) -> bool:
        return not self.lost and self.weights is not None

    def stop(self) -> None:
        self.lost = True

    def load(self) -> None:
        self._enter("load")
        self.weights, self.step = INITIAL, 0

    def restore(self, key: str) -> None:
        self._enter("restore")
        try:
            state = json.loads((self.run.store.local(key) / "state.json").read_text())
        except (KeyMissingError, OSError, ValueError) as error:
            raise CheckpointUnusable(f"{key} is not a trainer checkpoint ({error})") from None
        self.restored.append(key)
        self.weights, self.step = state["weights"], state["step"]

    def save(self, key: str) -> None:
        self._enter("save")
        folder = self.run.store.scratch()
        (folder / "state.json").write_text(json.dumps({"weights": self.weights, "step": self.step}))
        self.run.store.upload(key, folder)

    def applied_step(self) -> int:
        self._enter("applied_step")
        return self.step

    def train(self, step: int, batch: BatchRef, version: int | None = None) -> TrainReport:
        self._enter("train")
        if step == self.step + 1:
            self.weights, self.step = trained(self._loaded(), batch), step
            self.applied.append((step, batch, version))
        elif step != self.step:
            raise StepOutOfOrder(f"step {step} was asked of a trainer that has applied step {self.step}")
        return TrainReport(step=step, optimizer_steps=1, metrics={"policy/loss": self._loaded()}, credits=())

    def score(self, sequences: list[list[int]]) -> list[list[float]]:
        self._enter("score")
        return _logprobs(self._loaded(), sequences)

    def hidden_states(self, tokens: list[int]) -> dict[str, torch.Tensor]:
        raise NotImplementedError("a number has no layers")

    def export(self) -> Manifest:
        self._enter("export")
        tensors = tensors_of(self._loaded())
        manifest = Manifest.of(tensors)
        self._exported = folder = self.run.store.scratch()
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text("{}")
        (folder / "manifest.json").write_text(manifest.model_dump_json())
        return manifest

    def keep(self, key: str) -> None:
        self._enter("keep")
        assert self._exported is not None, "nothing was exported"
        self.run.store.upload(key, self._exported)
        self._exported = None

    def content_hash(self) -> str:
        self._enter("content_hash")
        return hash_of(self._loaded())

    def meeting_point(self) -> tuple[str, int]:
        self._enter("meeting_point")
        return "127.0.0.1", 1

    def buckets(self) -> list[tuple[TensorSpec, ...]]:
        self._enter("buckets")
        tensors = tensors_of(self._loaded())
        return [(TensorSpec(name, "float32", tuple(tensor.shape)),) for name, tensor in tensors.items()]

    def open_update_group(self, address: str, port: int, world_size: int, group_name: str) -> None:
        self._enter("open_update_group")
        try:
            self._wire.meet(world_size - 1)
        except queue.Empty:
            self.lost = True
            raise TrainerLost("the engines did not come") from None
        self.group = group_name

    def broadcast_bucket(self, number: int) -> None:
        self._enter("broadcast_bucket")
        assert self.group is not None
        self._wire.send(self.group, list(tensors_of(self._loaded()).values())[number])

    def close_update_group(self) -> None:
        self._enter("close_update_group")
        self.group = None

    def _enter(self, method: str) -> None:
        if self.lost:
            raise TrainerLost("the trainer is gone")
        if fault := self.faults.pop(method, None):
            self.lost = isinstance(fault, TrainerLost)
            raise fault

    def _loaded(self) -> float:
        assert self.weights is not None, "the trainer holds no model"
        return self.weights


class FakeTrainers:
    """What TrainerGroup.start and TrainerGroup.connect find: the newest of all that were started."""

    def __init__(self) -> None:
        self.started: list[FakeTrainer] = []
        self.wire = Wire()

    @property
    def newest(self) -> FakeTrainer:
        """The trainer that was started last."""
        return self.started[-1]

    def start(self, run: Run) -> FakeTrainer:
        """A trainer without a model, in place of the newest."""
        if self.started:
            self.newest.stop()
        self.started.append(FakeTrainer(run, self.wire))
        return self.newest

    def connect(self, run: Run) -> FakeTrainer:
        """The newest trainer; TrainerLost when it is gone."""
        if not self.started or self.newest.lost:
            raise TrainerLost(f"0 of 1 trainer ranks of {run.id} are running")
        return self.newest


class FakeEngine(EngineClient):
    """A client of an engine that is not there. `faults` are raised once, by method name."""

    def __init__(self, wire: Wire | None = None) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.version = UNSTAMPED
        self.up = True
        self.hangs = False
        """Its port is open and it answers what needs no model; nothing else within the deadline."""
        self.paused = False
        self.updating = False
        self.groups: dict[str, int] = {}
        """Rank of this engine in each process group that it is a member of."""
        self.loads: list[str] = []
        """Transfers that reached it: a folder's name, or the name of a tensor."""
        self.faults: dict[str, EngineError] = {}
        self._wire = wire or Wire()

    @property
    def weights(self) -> float:
        """The number that the served tensors stand for."""
        return self.tensors[_LAYER][0, 0].item()

    def check_generates(self) -> None:
        self._enter("check_generates")

    def model_info(self) -> ModelInfo:
        self._enter("model_info")
        return ModelInfo(model_path="model", weight_version=str(self.version))

    def stamp(self, version: int) -> None:
        self._enter("stamp")
        self.version = version

    def pause(self, mode: PauseMode = "retract") -> None:
        self._enter("pause")
        self.paused = True

    def resume(self) -> None:
        self._enter("resume")
        self.paused = False

    def checksums(self) -> tuple[RankChecksums, ...]:
        self._enter("checksums")
        hashes = {name: tensor_hash(tensor) for name, tensor in self.tensors.items()}
        return (RankChecksums(checksums=hashes, per_gpu_checksum=overall_hash(hashes)),)

    def score(self, sequences: Sequence[Sequence[int]], start: int = 0) -> list[list[float]]:
        self._enter("score")
        assert not self.paused, "a paused engine answers nothing"
        return [scored[start:] for scored in _logprobs(self.weights, sequences)]

    def update_from_disk(
        self, path: str | Path, flush_cache: bool = True, like: Path | WeightsFolder | None = None
    ) -> None:
        self._enter("update_from_disk")
        assert self.paused and self.version == UNSTAMPED, "weights change under traffic"
        self.tensors = load_file(Path(path) / "model.safetensors")
        self.loads.append(Path(path).name)

    def begin_update(self) -> None:
        self._enter("begin_update")
        if self.updating:
            raise EngineRefused("an update is open")
        self.updating = True

    def end_update(self) -> None:
        self._enter("end_update")
        if not self.updating:
            raise EngineRefused("no update is open")
        self.updating = False

    def update_from_bucket(self, bucket: PackedBucket, flush_cache: bool = True) -> None:
        self._enter("update_from_bucket")
        assert self.updating, "tensors come outside of an update"
        self.tensors |= unpack(bucket.content)
        self.loads.extend(bucket.shapes)

    def init_update_group(
        self, address: str, port: int, rank_offset: int, world_size: int, group_name: str, backend: str
    ) -> None:
        self._enter("init_update_group")
        self.groups[group_name] = rank_offset
        self._wire.join(group_name, rank_offset)

    def destroy_update_group(self, group_name: str) -> None:
        self._enter("destroy_update_group")
        if self.groups.pop(group_name, None) is None:
            raise EngineRefused(f"not a member of {group_name}")

    def update_from_group(
        self,
        names: Sequence[str],
        dtypes: Sequence[str],
        shapes: Sequence[Sequence[int]],
        group_name: str,
        flush_cache: bool = True,
    ) -> None:
        self._enter("update_from_group")
        assert self.updating, "tensors come outside of an update"
        for name, shape in zip(names, shapes, strict=True):
            try:
                self.tensors[name] = self._wire.receive(group_name, self.groups[group_name])
            except queue.Empty:
                raise EngineFailed(f"{name} did not come") from None
            assert tuple(self.tensors[name].shape) == tuple(shape)
            self.loads.append(name)

    def _enter(self, method: str) -> None:
        if not self.up:
            raise EngineUnreachable("nothing answers")
        if self.hangs and method not in ("model_info", "stamp"):
            raise EngineTimeout(f"no answer to {method}")
        if fault := self.faults.pop(method, None):
            raise fault


@dataclass
class FakeFleet:
    """What Fleet starts and finds."""

    clients: list[FakeEngine]
    started_on: list[Path] = field(default_factory=list)
    """The model folder of every start."""

    def engines(self) -> list[Engine]:
        """All engines by name."""
        return [Engine(f"engine-{number}", client) for number, client in enumerate(self.clients)]

    def start(self, model_path: Path, restart_hung: bool = False) -> list[Engine]:
        """Every engine up; one that was down, or hung if `restart_hung`, serves it without a stamp."""
        self.started_on.append(model_path)
        for client in self.clients:
            if not client.up or (restart_hung and client.hangs):
                client.up, client.hangs = True, False
                client.version, client.paused = UNSTAMPED, False
                client.tensors = load_file(model_path / "model.safetensors")
        return self.engines()

    def serving(self, version: int) -> list[Engine]:
        """The engines that are up and stamped with the version."""
        holding = [client.up and client.version == version for client in self.clients]
        return [engine for engine, holds in zip(self.engines(), holding, strict=True) if holds]


def _logprobs(weights: float, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
    return [[-(weights % 7) - token / 100 for token in sequence[1:]] for sequence in sequences]
