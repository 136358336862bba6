"""Running the model over a flat batch, with or without gradients, through Megatron's schedule."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple

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


class TokenLosses(NamedTuple):
    """Per-token results; N counts response tokens."""

    loss_N: Tensor
    clipped_N: Tensor
    """1 where the clip took the gradient away, else 0."""


LossOf = Callable[[Microbatch, Tensor], TokenLosses]
"""Per-token losses of a microbatch from its logprobs_N; their mean over all rows' tokens is minimised."""


class FlatScores(NamedTuple):
    """A flat batch's figures on every rank, fp32; zero at tokens of rows that the pass left out."""

    logprobs_N: Tensor
    entropy_N: Tensor
    loss_N: Tensor
    clipped_N: Tensor


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
        self, rows: Sequence[Row], tokens: int, temperature: float, loss_of: LossOf | None = None
    ) -> FlatScores:
        """Score the rows of a flat batch of `tokens`; with `loss_of` also accumulate gradients.

        The gradient is that of the mean loss over the rows' scored tokens, all ranks together. A collective
        of all ranks, which give the same rows.
        """
        flat_4N = torch.zeros(4, tokens, device=self._device)
        if not any(row.count > 0 for row in rows):
            return FlatScores(*flat_4N)
        microbatches = self._my_share(rows)

        def forward(batches: Iterator[Microbatch], model: torch.nn.Module) -> tuple[Tensor, Callable]:
            microbatch = next(batches)
            width = microbatch.tokens_BT.shape[1]
            even_BT = pad(microbatch.tokens_BT, (0, -width % self._config.tensor_parallel))
            logits_BTV = model(even_BT, None, None)[:, :width]  # the ranks had equal shares of the sequence
            return logits_BTV, lambda logits: self._finish(logits, microbatch, temperature, loss_of, flat_4N)

        with nullcontext() if loss_of else torch.no_grad():
            get_forward_backward_func()(
                forward_step_func=forward,
                data_iterator=iter(microbatches),
                model=[self._model],
                num_microbatches=len(microbatches),
                seq_length=1,  # of use to pipeline stages only, as the next one
                micro_batch_size=1,
                forward_only=loss_of is None,
            )
        group = parallel_state.get_data_parallel_group()
        if group.size() > 1:
            dist.all_reduce(flat_4N, group=group)  # every place is set by one rank and zero elsewhere
        return FlatScores(*flat_4N)

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
        loss_of: LossOf | None,
        flat_4N: Tensor,
    ) -> tuple[Tensor, Tensor, None]:
        """Megatron's loss function: summed loss, number of tokens, and nothing to report."""
        logits_NV = logits_BTV.flatten(0, 1).index_select(0, microbatch.positions_N)
        scores = token_scores(logits_NV, microbatch.targets_N, temperature, self._vocab_size)
        figures = [scores.logprobs_N, scores.entropy_N]
        loss = scores.logprobs_N.sum()
        if loss_of is not None:
            losses = loss_of(microbatch, scores.logprobs_N)
            figures += losses
            loss = losses.loss_N.sum()
        flat_4N[: len(figures), microbatch.places_N] = torch.stack(figures).detach()
        return loss, torch.tensor(len(microbatch.targets_N), dtype=torch.int, device=self._device), None
