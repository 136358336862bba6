"""One rank of the trainer. It knows no Ray and no Prefect; all ranks make the same calls in one order."""

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from configs.errors import UserError
from configs.run import RunConfig
from configs.training import StateLayout
from infra.address import Address
from infra.process_group import broadcast, join_group, leave_group
from infra.quantisation.errors import QuantisationError
from infra.store.base import KeyMissingError, StoreError
from tasks.model.architecture import Architecture
from tasks.model.bridge.buckets import Bucket, TensorSpec, plan_buckets
from tasks.model.bridge.mapping import Mapping
from tasks.model.bridge.transfer import export_weights, load_weights
from tasks.model.bridge.writer import copy_companions, write_weights
from tasks.model.errors import TrainerError
from tasks.model.megatron import distributed
from tasks.model.megatron.hidden import hidden_states
from tasks.model.megatron.microbatches import to_rows
from tasks.model.recipe import publish_recipe
from tasks.model.stored import stored_model
from tasks.record.batches import BatchUnreadable, read_batch
from tasks.record.manifest import Manifest, TensorEntry
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.training import checkpoint
from tasks.training.checkpoint import CheckpointIndex
from tasks.training.errors import CheckpointUnusable, StepOutOfOrder
from tasks.training.learner import Learner
from tasks.training.report import TrainReport
from tasks.training.trainer import Trainer

T = TypeVar("T")


class TrainerRank(Trainer):
    """A process's part of the trainer: Megatron ranks, the learner, and the step it has applied."""

    def __init__(self, run: Run, rank: int, address: str, port: int) -> None:
        """Join the other ranks at address:port, which rank 0 serves; blocks until all are there.

        Raises TrainerError where this machine cannot train in trainer.dtype or with trainer.backend.
        """
        self._config = config = run.config
        _check_machine(config)
        self._run = run
        self._rank = rank
        self._address = address
        self._device = distributed.join(config.trainer, rank, address, port)
        self._recipe = publish_recipe(config)
        self._learner: Learner | None = None
        self._architecture: Architecture | None = None
        self._step = 0
        self._report: TrainReport | None = None
        self._plan: list[Bucket] | None = None
        self._update_group: dist.ProcessGroup | None = None
        self._exported: Path | None = None

    def close(self) -> None:
        """Leave the other ranks."""
        self._discard_export()
        distributed.leave()

    def load(self) -> None:
        """See Trainer."""
        model_path = _together(lambda: stored_model(self._run))
        architecture = Architecture.read(model_path)
        learner = Learner(self._config, architecture, self._device)
        load_weights(learner.model, architecture, model_path)
        self._adopt(learner, architecture, step=0, report=None)

    def restore(self, key: str) -> None:
        """See Trainer."""
        try:
            folder = _together(lambda: self._run.store.local(key))
        except KeyMissingError as error:
            raise CheckpointUnusable(str(error)) from None
        index, trainer = checkpoint.read_index(folder), self._config.trainer
        if name := index.differing(trainer):
            raise CheckpointUnusable(
                f"{folder} was written with trainer.{name} {getattr(index, name)}, and the config has "
                f"{getattr(trainer, name)}: set it back, or start from exported weights"
            )
        learner = Learner(self._config, index.architecture, self._device)
        learner.load_state(checkpoint.read_rank(folder, self._rank))
        self._adopt(learner, index.architecture, index.step, index.report)

    def save(self, key: str) -> None:
        """See Trainer. Each rank stores its own part; rank 0 makes them a checkpoint when all are there."""
        learner, architecture = self._loaded()
        store, trainer = self._run.store, self._config.trainer
        folder = _together(store.scratch)
        checkpoint.write_rank(folder, self._rank, learner.state())
        if self._rank == 0:
            layout = trainer.model_dump(include=set(StateLayout.model_fields))
            index = CheckpointIndex(step=self._step, report=self._report, architecture=architecture, **layout)
            checkpoint.write_index(folder, index)
        _together(lambda: store.put(key, folder))
        _together(lambda: store.publish(key, checkpoint.files(trainer)) if self._rank == 0 else None)

    def applied_step(self) -> int:
        """See Trainer."""
        self._loaded()
        return self._step

    def train(self, step: int, batch: BatchRef, version: int | None = None) -> TrainReport:
        """See Trainer."""
        learner, _ = self._loaded()
        if step == self._step and self._report is not None:
            return self._report
        if step != self._step + 1 or batch.step != step:
            raise StepOutOfOrder(
                f"step {step} with the batch of step {batch.step} was asked of a trainer that has applied "
                f"step {self._step}: give it step {self._step + 1}, or restore another checkpoint"
            )
        try:
            rollouts = _together(lambda: read_batch(self._run.store, batch))
        except BatchUnreadable as error:
            raise TrainerError(str(error)) from None
        applied = learner.apply(step, rollouts, step - 1 if version is None else version)
        self._report = TrainReport(
            step=step,
            optimizer_steps=applied.optimizer_steps,
            metrics=applied.metrics,
            credits=applied.credits,
        )
        self._step = step
        return self._report

    def score(self, sequences: list[list[int]]) -> list[list[float]]:
        """See Trainer."""
        learner, _ = self._loaded()
        rows = to_rows([(tuple(sequence), 1) for sequence in sequences])
        flat = learner.score(rows, temperature=1.0).tolist()
        return [flat[row.offset : row.offset + max(row.count, 0)] for row in rows]

    def hidden_states(self, tokens: list[int]) -> dict[str, torch.Tensor]:
        """See Trainer."""
        learner, _ = self._loaded()
        return hidden_states(learner.model, tokens, self._device)

    def export(self) -> Manifest:
        """See Trainer."""
        manifest = Manifest(tensors={})
        self._discard_export()
        model_path = _together(lambda: stored_model(self._run) if self._rank == 0 else None)
        self._exported = folder = _together(lambda: self._run.store.scratch() if self._rank == 0 else None)
        if folder and model_path:
            copy_companions(model_path, folder)
            config = self._recipe.config(json.loads((model_path / "config.json").read_text()))
            (folder / "config.json").write_text(json.dumps(config, indent=2))
            manifest = write_weights(folder, self._tensors())
        else:
            deque(self._tensors(), maxlen=0)  # its part of the gathering
        return _of_rank_0(manifest)

    def keep(self, key: str) -> None:
        """See Trainer."""
        if self._rank > 0:
            return
        if self._exported is None:
            raise TrainerError("nothing was exported: call export first")
        self._run.store.upload(key, self._exported)
        self._exported = None

    def content_hash(self) -> str:
        """See Trainer."""
        entries = {name: TensorEntry.of(tensor) for name, tensor in self._tensors()}
        return _of_rank_0(Manifest(tensors=entries).hash)

    def meeting_point(self) -> tuple[str, int]:
        """See Trainer."""
        address: Address = self._run.config.cluster.build(self._run.home).address()
        return self._address, address.free_port()

    def buckets(self) -> list[tuple[TensorSpec, ...]]:
        """See Trainer."""
        return [bucket.tensors for bucket in self._buckets()]

    def open_update_group(self, address: str, port: int, world_size: int, group_name: str) -> None:
        """See Trainer."""
        self.close_update_group()
        if self._rank == 0:
            self._update_group = join_group(
                address,
                port,
                world_size,
                0,
                group_name,
                self._config.trainer.backend,
                self._config.publish.timeout_s,
            )

    def broadcast_bucket(self, number: int) -> None:
        """See Trainer."""
        tensors = (tensor for _, tensor in self._tensors(self._buckets()[number].mappings))
        if self._rank > 0:
            deque(tensors, maxlen=0)  # its part of the gathering
        elif self._update_group is None:
            raise TrainerError("no update group is open: call open_update_group first")
        else:
            broadcast(tensors, self._update_group)

    def close_update_group(self) -> None:
        """See Trainer."""
        if self._update_group is not None:
            leave_group(self._update_group)
            self._update_group = None

    def _tensors(self, only: Iterable[Mapping] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
        """On rank 0 the tensors as engines hold them, scales made of the same weights right after each.

        A collective, which all ranks must iterate to the end.
        """
        learner, architecture = self._loaded()
        try:
            yield from self._recipe.apply(export_weights(learner.model, architecture, only))
        except QuantisationError as error:  # no TrainerError: the other ranks wait in the collective
            raise UserError(
                f"the weights of step {self._step} cannot be published: {error}: set publish.format to one "
                "that suits the model, or start a new run with a lower trainer.learning_rate"
            ) from None

    def _buckets(self) -> list[Bucket]:
        if self._plan is None:
            learner, architecture = self._loaded()
            limit = self._config.publish.bucket_bytes
            trainer = self._config.trainer
            self._plan = plan_buckets(learner.model, architecture, trainer, self._recipe, limit)
        return self._plan

    def _discard_export(self) -> None:
        if self._exported is not None:
            shutil.rmtree(self._exported, ignore_errors=True)
            self._exported = None

    def _adopt(
        self, learner: Learner, architecture: Architecture, step: int, report: TrainReport | None
    ) -> None:
        self._learner, self._architecture, self._step, self._report = learner, architecture, step, report
        self._plan = None

    def _loaded(self) -> tuple[Learner, Architecture]:
        if self._learner is None or self._architecture is None:
            raise TrainerError("the trainer holds no model: call load or restore first")
        return self._learner, self._architecture


def _together(action: Callable[[], T]) -> T:
    """What each rank gets of the store; what one of them fails at is raised on all, and none waits for it."""
    result: list[T] = []
    failure: Exception | None = None
    try:
        result.append(action())
    except (StoreError, KeyMissingError, BatchUnreadable) as error:
        failure = error
    failures: list[Exception | None] = [None] * dist.get_world_size()
    dist.all_gather_object(failures, failure)
    for each in failures:
        if each is not None:
            raise each
    return result[0]


def _of_rank_0(value: T) -> T:
    """Rank 0's value, on every rank; all must have come this far."""
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def _check_machine(config: RunConfig) -> None:
    trainer = config.trainer
    if torch.cuda.is_available():
        return
    for name, value, instead in (("dtype", "bfloat16", "float32"), ("backend", "nccl", "gloo")):
        if getattr(trainer, name) == value:
            raise TrainerError(
                f'trainer.{name} "{value}" needs a GPU and there is none: set it to "{instead}"'
            )
