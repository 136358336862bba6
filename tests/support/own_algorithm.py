"""An algorithm that no file of the project knows: its settings, and the owner that they build."""

from collections.abc import Mapping, Sequence

from pydantic import Field
from torch import Tensor

from configs.algorithm import AlgorithmSection
from tasks.record.samples import RolloutBatch
from tasks.training.algorithms.base import Tokens
from tasks.training.algorithms.importance import tis_weights


class LeaveOneOut(AlgorithmSection):
    """REINFORCE, each sample's baseline the mean reward of the others of its group (RLOO)."""

    owner = "tests.support.own_algorithm:Rloo"
    scale: float = Field(default=1.0, gt=0)
    """Factor of the advantages."""


class Rloo:
    """Ahmadian et al., Back to Basics, arXiv:2402.14740, equations 2 and 6, with token TIS."""

    columns = ("loss", "surprise")

    def __init__(self, config: LeaveOneOut) -> None:
        self._config = config

    def advantages(self, batch: RolloutBatch, values: Sequence[Tensor] | None) -> list[float | None]:
        """Reward less baseline of every graded sample that has another one in its group."""
        groups = ([sample.reward for sample in group.samples] for group in batch.groups)
        return [
            None if advantage is None else self._config.scale * advantage
            for rewards in groups
            for advantage in leave_one_out(rewards)
        ]

    def loss(self, tokens: Tokens) -> dict[str, Tensor]:
        """Column "loss", -w A log pi, and column "surprise", -log pi; w is the TIS weight."""
        weights_N = tis_weights(tokens, self._config.tis_cap)
        return {
            "surprise": -tokens.logprobs_N,
            "loss": -weights_N * tokens.advantages_N * tokens.logprobs_N,
        }

    def metrics(self, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """The mean surprise of the tokens, nats."""
        return {"policy/surprise": columns["surprise"].mean().item()}


def leave_one_out(rewards: Sequence[float | None]) -> list[float | None]:
    """A_i = R_i - mean of R_j over the other graded samples j; None for the ungraded and the lonely."""
    graded = [reward for reward in rewards if reward is not None]
    if len(graded) < 2:
        return [None] * len(rewards)
    total, others = sum(graded), len(graded) - 1
    return [None if reward is None else reward - (total - reward) / others for reward in rewards]
