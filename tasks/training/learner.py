"""The update of the policy on one batch: measure, gate, and only then step."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from configs.run import RunConfig
from tasks.model.architecture import Architecture
from tasks.model.megatron.microbatches import Microbatch, Row
from tasks.model.megatron.model import build_model, held_tensors
from tasks.model.megatron.optimizer import Optimizer
from tasks.model.megatron.passes import Columns, ModelPass, Objective
from tasks.record.credit import VersionCredit
from tasks.record.samples import RolloutBatch
from tasks.rollout.metrics import lag_metrics
from tasks.training import gates
from tasks.training.algorithms.base import Algorithm, Tokens
from tasks.training.credit import credits_in
from tasks.training.divergence import measure
from tasks.training.errors import StepRefused
from tasks.training.token_batch import TokenBatch, lay_out


class Applied(NamedTuple):
    """What a batch did to the policy."""

    optimizer_steps: int
    metrics: dict[str, float]
    credits: tuple[VersionCredit, ...]
    """What the batch says of the versions that generated it."""


class BeforeUpdate(NamedTuple):
    """What is known of a batch before the first optimizer step."""

    logprobs_N: Tensor
    entropy_N: Tensor
    first: Columns
    """The pass over the first minibatch, whose gradients are accumulated."""
    metrics: dict[str, float]


class Learner:
    """Model and optimizer of one rank. All ranks make the same calls with the same arguments."""

    def __init__(self, config: RunConfig, architecture: Architecture, device: torch.device) -> None:
        self._config = config
        self._device = device
        self._ddp = build_model(architecture, config.trainer, device)
        self._pass = ModelPass(self._ddp, architecture.vocab_size, config.trainer, device)
        self._algorithm: Algorithm = config.algorithm.build()
        self._optimizer: Optimizer | None = None

    @property
    def model(self) -> nn.Module:
        """This rank's part of the model, without its data-parallel wrapper."""
        return self._ddp.module

    @property
    def optimizer(self) -> Optimizer:
        """Made at its first use, after the weights are set: below fp32 it starts from a copy of them."""
        if self._optimizer is None:
            self._optimizer = Optimizer(self._ddp, self._config.trainer)
        return self._optimizer

    def score(self, rows: list[Row], temperature: float) -> Tensor:
        """Log-probabilities of the rows' scored tokens, flat, fp32, on every rank."""
        return self._pass.run(rows, sum(row.count for row in rows), temperature)["logprobs"]

    def apply(self, step: int, batch: RolloutBatch, version: int) -> Applied:
        """Train on a graded batch, starting from weight version `version`.

        Raises StepRefused, weights and optimizer unchanged, when a gate is hit. A batch without a usable
        group takes no optimizer step.
        """
        tokens = lay_out(batch, self._algorithm.advantages(batch, values=None), self._device)
        minibatches = tokens.minibatches(self._config.algorithm.minibatches)
        learning_rate = self.optimizer.learning_rate(step)
        with self._unchanged_when_refused(may_step_twice=len(minibatches) > 1):
            before = self._before_update(step, tokens, version, minibatches[0] if minibatches else [])
            updates = []
            for index, rows in enumerate(minibatches):
                columns = self._accumulate(tokens, rows, before.logprobs_N) if index else before.first
                updates.append(self._update(step, rows, columns, before.logprobs_N, learning_rate))
        metrics = {
            **lag_metrics(batch, version),
            **before.metrics,
            **_means(updates),
            "policy/lr": learning_rate,
        }
        abs_diff_N = (before.logprobs_N - tokens.rollout_logprobs_N).abs()
        credits = credits_in(batch, tokens.versions_N, abs_diff_N, before.entropy_N)
        return Applied(len(updates), metrics, credits)

    def state(self) -> dict[str, Any]:
        """Weights, buffers and optimizer state of this rank; the tensors are the live ones."""
        return {"model": held_tensors(self.model), "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over the state of a rank of the same layout."""
        with torch.no_grad():
            for name, tensor in held_tensors(self.model).items():
                tensor.copy_(state["model"][name])
        self.optimizer.load_state_dict(state["optimizer"])

    def _before_update(self, step: int, tokens: TokenBatch, version: int, first: list[Row]) -> BeforeUpdate:
        """Measure the batch and pass its gates, with the first minibatch's gradients accumulated.

        The pass that computes those gradients also scores the first minibatch: before any update its
        log-probabilities are the old ones, and a second forward is saved.
        """
        self.optimizer.zero_grad()
        in_first = {row.offset for row in first}
        others = [row for row in tokens.rows if row.offset not in in_first]
        rest = self._pass.run(others, tokens.count, self._config.rollout.temperature)
        columns = self._accumulate(tokens, first, None)
        logprobs_N, entropy_N = (rest[name] + columns[name] for name in ("logprobs", "entropy"))
        gates.check_logprobs(step, logprobs_N)
        if not tokens.count:
            return BeforeUpdate(logprobs_N, entropy_N, columns, {})
        on_version_N, cap = tokens.versions_N == version, self._config.algorithm.tis_cap
        divergence = measure(logprobs_N, tokens.rollout_logprobs_N, on_version_N, cap)
        gates.check_divergence(step, divergence, self._config.gates)
        metrics = {**divergence.metrics(), "policy/entropy": entropy_N.mean().item()}
        return BeforeUpdate(logprobs_N, entropy_N, columns, metrics)

    def _accumulate(self, tokens: TokenBatch, rows: list[Row], old_logprobs_N: Tensor | None) -> Columns:
        """Add the gradients of a minibatch; without old log-probabilities its own are the old ones."""

        def of(microbatch: Microbatch, logprobs_N: Tensor) -> Columns:
            places = microbatch.places_N
            old_N = logprobs_N.detach() if old_logprobs_N is None else old_logprobs_N[places]
            rollout_N, advantages_N = tokens.rollout_logprobs_N[places], tokens.advantages_N[places]
            return self._algorithm.loss(Tokens(logprobs_N, old_N, rollout_N, advantages_N))

        objective = Objective(self._algorithm.columns, of)
        return self._pass.run(rows, tokens.count, self._config.rollout.temperature, objective)

    def _update(
        self, step: int, rows: list[Row], columns: Columns, before_N: Tensor, learning_rate: float
    ) -> dict[str, float]:
        """Take one optimizer step with the accumulated gradients, unless a gate refuses it."""
        places = torch.cat([torch.arange(row.offset, row.offset + row.count) for row in rows]).to(
            self._device
        )
        columns = {name: column_N[places] for name, column_N in columns.items()}
        loss = columns["loss"].mean().item()
        grad_norm = self.optimizer.grad_norm()
        gates.check_update(step, loss, grad_norm, self._config.gates)
        self.optimizer.step(learning_rate, grad_norm)
        self.optimizer.zero_grad()
        return {
            "policy/loss": loss,
            "policy/grad_norm": grad_norm,
            **self._algorithm.metrics(columns),
            "policy/ppo_kl": (before_N[places] - columns["logprobs"]).mean().item(),
        }

    @contextmanager
    def _unchanged_when_refused(self, may_step_twice: bool) -> Iterator[None]:
        """Undo earlier optimizer steps of the same batch when a gate refuses a later one."""
        snapshot = copy.deepcopy(self.state()) if may_step_twice else None
        try:
            yield
        except StepRefused:
            if snapshot is not None:
                self.load_state(snapshot)
            raise


def _means(updates: list[dict[str, float]]) -> dict[str, float]:
    """Each metric's mean over the optimizer steps; empty without any."""
    return {name: fmean([update[name] for update in updates]) for name in (updates[0] if updates else ())}
