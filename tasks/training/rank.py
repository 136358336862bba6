"""One rank of the trainer. It knows no Ray and no Prefect; all ranks make the same calls in one order."""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from configs.errors import UserError
from configs.run import RunConfig
from infra import folders
from infra.process_group import broadcast, join_group, leave_group
from infra.quantisation.errors import QuantisationError
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
from tasks.record.manifest import Manifest, TensorEntry
from tasks.record.samples import RolloutBatch
from tasks.training import checkpoint
from tasks.training.checkpoint import CheckpointIndex
from tasks.training.errors import CheckpointUnusable, StepOutOfOrder
from tasks.training.learner import Learner
from tasks.training.report import TrainReport


class TrainerRank:
    """A process's part of the trainer: Megatron ranks, the learner, and the step it has applied."""

    def __init__(self, config: RunConfig, rank: int, address: str, port: int) -> None:
        """Join the other ranks at address:port, which rank 0 serves; blocks until all are there.

        Raises TrainerError where this machine cannot train in trainer.dtype or with trainer.backend.
        """
        _check_machine(config)
        self._config = config
        self._rank = rank
        self._device = distributed.join(config.trainer, rank, address, port)
        self._recipe = publish_recipe(config)
        self._learner: Learner | None = None
        self._architecture: Architecture | None = None
        self._step = 0
        self._report: TrainReport | None = None
        self._plan: list[Bucket] | None = None
        self._update_group: dist.ProcessGroup | None = None

    def close(self) -> None:
        """Leave the other ranks."""
        distributed.leave()

    def load(self, model_path: Path) -> None:
        """Start afresh from a Hugging Face folder: its weights, a new optimizer, step 0.

        Raises ModelUnsupported or WeightsMismatch.
        """
        architecture = Architecture.read(model_path)
        learner = Learner(self._config, architecture, self._device)
        load_weights(learner.model, architecture, model_path)
        self._adopt(learner, architecture, step=0, report=None)

    def restore(self, folder: Path) -> None:
        """Go on exactly where `save` was called; raises CheckpointUnusable."""
        index = checkpoint.read_index(folder)
        trainer = self._config.trainer
        for name in ("tensor_parallel", "data_parallel", "expert_parallel", "dtype"):
            if getattr(index, name) != getattr(trainer, name):
                raise CheckpointUnusable(
                    f"{folder} was written with trainer.{name} {getattr(index, name)}, and the config has "
                    f"{getattr(trainer, name)}: set it back, or start from exported weights"
                )
        learner = Learner(self._config, index.architecture, self._device)
        learner.load_state(checkpoint.read_rank(folder, self._rank))
        self._adopt(learner, index.architecture, index.step, index.report)

    def save(self, folder: Path) -> None:
        """Write a checkpoint folder, which appears whole or not at all and replaces an earlier one."""
        learner, architecture = self._loaded()
        if self._rank == 0:
            folders.fresh_partial(folder)
        dist.barrier()
        checkpoint.write_rank(folders.partial_of(folder), self._rank, learner.state())
        dist.barrier()
        if self._rank == 0:
            trainer = self._config.trainer
            index = CheckpointIndex(
                step=self._step,
                report=self._report,
                architecture=architecture,
                tensor_parallel=trainer.tensor_parallel,
                data_parallel=trainer.data_parallel,
                expert_parallel=trainer.expert_parallel,
                dtype=trainer.dtype,
            )
            checkpoint.write_index(folders.partial_of(folder), index)
            folders.finish_partial(folder)
        dist.barrier()

    def applied_step(self) -> int:
        """The last step whose batch the weights have seen; 0 for the initial weights."""
        self._loaded()
        return self._step

    def train(self, step: int, batch: RolloutBatch, version: int | None = None) -> TrainReport:
        """Apply a graded batch as `step`; the step that is already applied gives its stored report again.

        `version` is the weight version that the trainer holds, step - 1 when absent. Raises StepOutOfOrder,
        or StepRefused with the state unchanged.
        """
        learner, _ = self._loaded()
        if step == self._step and self._report is not None:
            return self._report
        if step != self._step + 1 or batch.step != step:
            raise StepOutOfOrder(
                f"step {step} with the batch of step {batch.step} was asked of a trainer that has applied "
                f"step {self._step}: give it step {self._step + 1}, or restore another checkpoint"
            )
        applied = learner.apply(step, batch, step - 1 if version is None else version)
        self._report = TrainReport(
            step=step,
            optimizer_steps=applied.optimizer_steps,
            metrics=applied.metrics,
            credits=applied.credits,
        )
        self._step = step
        return self._report

    def score(self, sequences: list[list[int]]) -> list[list[float]]:
        """Log-probabilities of tokens[1:] of each sequence at temperature 1, nats, computed in fp32."""
        learner, _ = self._loaded()
        rows = to_rows([(tuple(sequence), 1) for sequence in sequences])
        flat = learner.score(rows, temperature=1.0).tolist()
        return [flat[row.offset : row.offset + max(row.count, 0)] for row in rows]

    def hidden_states(self, tokens: list[int]) -> dict[str, torch.Tensor] | None:
        """What embedding, decoder layers and last norm put out; None on other ranks than 0."""
        learner, _ = self._loaded()
        states = hidden_states(learner.model, tokens, self._device)
        return states if self._rank == 0 else None

    def export(self, folder: Path, model_path: Path) -> Manifest | None:
        """Write the weights as a Hugging Face folder in the format that engines are to hold.

        It appears whole or not at all, in place of an earlier one of the name. config.json, but for the
        format that it declares, and tokenizer files are those of `model_path`. Returns the manifest on
        rank 0, whose manifest.json lies in the folder.
        """
        manifest = None
        if self._rank == 0:
            with folders.atomic(folder) as partial:
                copy_companions(model_path, partial)
                config = self._recipe.config(json.loads((model_path / "config.json").read_text()))
                (partial / "config.json").write_text(json.dumps(config, indent=2))
                manifest = write_weights(partial, self._tensors())
        else:
            deque(self._tensors(), maxlen=0)  # its part of the gathering
        dist.barrier()
        return manifest

    def content_hash(self) -> str | None:
        """Content hash of the weights as `export` would write them; None on other ranks than 0."""
        entries = {name: TensorEntry.of(tensor) for name, tensor in self._tensors()}
        return Manifest(tensors=entries).hash if self._rank == 0 else None

    def buckets(self) -> list[tuple[TensorSpec, ...]]:
        """The tensors of each broadcast bucket, as engines hold them, at most publish.bucket_mb MiB each."""
        return [bucket.tensors for bucket in self._buckets()]

    def open_update_group(self, address: str, port: int, world_size: int, group_name: str) -> None:
        """Rank 0 joins the engines' update group as its rank 0; blocks until the engines have joined."""
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
        """Broadcast the tensors of a bucket in order; blocks until the engines have received them."""
        tensors = (tensor for _, tensor in self._tensors(self._buckets()[number].mappings))
        if self._rank > 0:
            deque(tensors, maxlen=0)  # its part of the gathering
        elif self._update_group is None:
            raise TrainerError("no update group is open: call open_update_group first")
        else:
            broadcast(tensors, self._update_group)

    def close_update_group(self) -> None:
        """Leave the engines' update group; fine when none is open."""
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

    def _adopt(
        self, learner: Learner, architecture: Architecture, step: int, report: TrainReport | None
    ) -> None:
        self._learner, self._architecture, self._step, self._report = learner, architecture, step, report
        self._plan = None

    def _loaded(self) -> tuple[Learner, Architecture]:
        if self._learner is None or self._architecture is None:
            raise TrainerError("the trainer holds no model: call load or restore first")
        return self._learner, self._architecture


def _check_machine(config: RunConfig) -> None:
    trainer = config.trainer
    if torch.cuda.is_available():
        return
    for name, value, instead in (("dtype", "bfloat16", "float32"), ("backend", "nccl", "gloo")):
        if getattr(trainer, name) == value:
            raise TrainerError(
                f'trainer.{name} "{value}" needs a GPU and there is none: set it to "{instead}"'
            )
