"""What an algorithm is: which samples count, for how much, and with what loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from tasks.record.samples import RolloutBatch

Advantage = float | Tensor
"""One figure for all response tokens of a sample, or a tensor with one for each of them."""


@dataclass(frozen=True)
class Tokens:
    """N >= 0 response tokens of samples that are used, whole samples one after the other; fp32, nats."""

    logprobs_N: Tensor
    """Of the trainer as it is; it alone carries a gradient."""
    old_logprobs_N: Tensor
    """Of the trainer before the step's first update."""
    rollout_logprobs_N: Tensor
    """Of the engine that drew the tokens."""
    advantages_N: Tensor


class Algorithm(Protocol):
    """The owner of an AlgorithmSection, made of it alone. It keeps no state: all ranks hold one."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what `loss` gives; "loss" is one, "logprobs" and "entropy" are taken."""

    def advantages(self, batch: RolloutBatch, values: Sequence[Tensor] | None) -> Sequence[Advantage | None]:
        """One for each sample of the graded batch, in its order; None where a sample is not used.

        `values` holds a critic's value of each response token for each sample, None without a critic.
        """

    def loss(self, tokens: Tokens) -> Mapping[str, Tensor]:
        """The `columns`, each of shape [N]; the mean of "loss" over a minibatch's tokens is minimised."""

    def metrics(self, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """Figures of one optimizer step by MLflow name, from the columns of its minibatch's tokens."""
