"""Running the model over a flat batch, with or without gradients, through Megatron's schedule."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor
from torch.nn.functional import pad

from configs.training import TrainerConfig
from tasks.model.megatron.logprobs import token_scores
from tasks.model.megatron.microbatches import Microbatch, Row, deal, idle_microbatch

SCORES = ("logprobs", "entropy")
"""Columns that every pass gives."""
Finish = Callable[[Tensor], tuple[Tensor, Tensor, None]]
"""Megatron's loss function of a microbatch's logits."""
Columns = Mapping[str, Tensor]
"""Figures of response tokens by name, each of shape [N]."""


@dataclass(frozen=True)
class Objective:
    """What is minimised, and the columns that are made with it."""

    names: tuple[str, ...]
    """Of the columns that `of` gives, known ahead so that ranks without rows agree on them as well."""
    of: Callable[[Microbatch, Tensor], Columns]
    """Columns of a microbatch from its logprobs_N; the mean of "loss" over all rows' tokens is minimised."""

    def __post_init__(self) -> None:
        if "loss" not in self.names or set(SCORES) & set(self.names):
            raise ValueError(
                f'an algorithm\'s columns are {self.names}: have "loss" among them, and none of {SCORES}'
            )

    def columns(self, microbatch: Microbatch, logprobs_N: Tensor) -> list[Tensor]:
        """In the order of the names; ValueError when others were made."""
        made = self.of(microbatch, logprobs_N)
        if made.keys() != set(self.names):
            raise ValueError(
                f"an algorithm's loss gave {sorted(made)} and its columns are {sorted(self.names)}: "
                "name the same in both"
            )
        return [made[name] for name in self.names]


class ModelPass:
    """Forward, or forward and backward, over rows that are spread over the data-parallel ranks."""

    def __init__(
        self,
        model: DistributedDataParallel,
        vocab_size: int,
        config: TrainerConfig,
        device: torch.device,
    ) -> None:
        self._model = model
        self._vocab_size = vocab_size
        self._config = config
        self._device = device

    def run(
        self, rows: Sequence[Row], tokens: int, temperature: float, objective: Objective | None = None
    ) -> Columns:
        """Score the rows of a flat batch of `tokens`; with an objective also accumulate gradients.

        Gives "logprobs", "entropy" and the objective's columns on every rank, fp32, zero at tokens of other
        rows. The gradient is that of the mean loss over the rows' scored tokens, all ranks together. A
        collective of all ranks, which give the same rows.
        """
        names = SCORES + (objective.names if objective else ())
        table_CN = torch.zeros(len(names), tokens, device=self._device)
        columns = dict(zip(names, table_CN, strict=True))
        if not any(row.count > 0 for row in rows):
            return columns
        microbatches = self._my_share(rows)

        def forward(batches: Iterator[Microbatch], model: torch.nn.Module) -> tuple[Tensor, Finish]:
            microbatch = next(batches)
            width = microbatch.tokens_BT.shape[1]
            even_BT = pad(microbatch.tokens_BT, (0, -width % self._config.tensor_parallel))
            logits_BTV = model(even_BT, None, None)[:, :width]  # the ranks had equal shares of the sequence
            return logits_BTV, lambda logits: self._finish(
                logits, microbatch, temperature, objective, table_CN
            )

        with nullcontext() if objective else torch.no_grad():
            get_forward_backward_func()(
                forward_step_func=forward,
                data_iterator=iter(microbatches),
                model=[self._model],
                num_microbatches=len(microbatches),
                seq_length=1,  # of use to pipeline stages only, as the next one
                micro_batch_size=1,
                forward_only=objective is None,
            )
        group = parallel_state.get_data_parallel_group()
        if group.size() > 1:
            dist.all_reduce(table_CN, group=group)  # every place is set by one rank and zero elsewhere
        return columns

    def _my_share(self, rows: Sequence[Row]) -> list[Microbatch]:
        rank, ranks = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
        share = deal(rows, self._config.microbatch_tokens, rank, ranks)
        share += [idle_microbatch()] * (self._passes(len(share)) - len(share))
        return [Microbatch(*(tensor.to(self._device) for tensor in microbatch)) for microbatch in share]

    def _passes(self, mine: int) -> int:
        """Passes that this rank takes part in: as many as every rank that it shares experts with."""
        passes = torch.tensor(max(mine, 1), device=self._device)
        if self._config.expert_parallel > 1:
            dist.all_reduce(passes, dist.ReduceOp.MAX)
        return int(passes)

    def _finish(
        self,
        logits_BTV: Tensor,
        microbatch: Microbatch,
        temperature: float,
        objective: Objective | None,
        table_CN: Tensor,
    ) -> tuple[Tensor, Tensor, None]:
        """Megatron's loss function: summed loss, number of tokens, and nothing to report."""
        logits_NV = logits_BTV.flatten(0, 1).index_select(0, microbatch.positions_N)
        scores = token_scores(logits_NV, microbatch.targets_N, temperature, self._vocab_size)
        figures = [scores.logprobs_N, scores.entropy_N]
        loss = scores.logprobs_N.sum()
        if objective is not None:
            made = objective.columns(microbatch, scores.logprobs_N)
            figures += made
            loss = made[objective.names.index("loss")].sum()
        table_CN[:, microbatch.places_N] = torch.stack(figures).detach()
        return loss, torch.tensor(len(microbatch.targets_N), dtype=torch.int, device=self._device), None
