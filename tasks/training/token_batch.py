"""A rollout batch laid out by tokens: one place for each response token of each sample, in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, repeat

import torch
from torch import Tensor

from tasks.model.megatron.microbatches import Row, to_rows
from tasks.record.samples import RolloutBatch, Sample
from tasks.training.algorithms.base import Advantage


@dataclass(frozen=True)
class TokenBatch:
    """What training needs of a batch; N counts response tokens."""

    rows: list[Row]
    """One for each sample."""
    used: list[list[Row]]
    """For each group with any, the rows that have an advantage and response tokens."""
    rollout_logprobs_N: Tensor
    advantages_N: Tensor
    """Zero at tokens of samples that are not used."""
    versions_N: Tensor
    """The weight version that generated the token; int64."""

    @property
    def count(self) -> int:
        """The number N of response tokens."""
        return len(self.rollout_logprobs_N)

    def minibatches(self, count: int) -> list[list[Row]]:
        """At most `count` parts of the used rows, by whole groups, as even as can be; none is empty."""
        groups = len(self.used)
        bounds = [index * groups // count for index in range(count + 1)]
        parts = [self.used[start:stop] for start, stop in pairwise(bounds)]
        return [[row for group in part for row in group] for part in parts if part]


def lay_out(batch: RolloutBatch, advantages: Sequence[Advantage | None], device: torch.device) -> TokenBatch:
    """Lay a batch out, with an advantage for each of its samples; one without (None) is not used.

    ValueError when there are more or fewer advantages than samples.
    """
    samples = list(batch.samples())
    if len(advantages) != len(samples):
        raise ValueError(
            f"the algorithm gave {len(advantages)} advantages for {len(samples)} samples: give one for each, "
            "None where a sample is not used"
        )
    rows = to_rows(
        [(sample.prompt_tokens + sample.response_tokens, len(sample.prompt_tokens)) for sample in samples]
    )
    remaining = zip(rows, advantages, strict=True)
    by_group = [list(islice(remaining, len(group.samples))) for group in batch.groups]
    used = [[row for row, advantage in group if advantage is not None and row.count] for group in by_group]
    return TokenBatch(
        rows,
        [group for group in used if group],
        rollout_logprobs_N=_flat((sample.rollout_logprobs for sample in samples), torch.float32).to(device),
        advantages_N=_spread(rows, advantages, device),
        versions_N=_flat(map(_versions, samples), torch.int64).to(device),
    )


def _flat(parts: Iterable[Iterable[float]], dtype: torch.dtype) -> Tensor:
    return torch.tensor([value for part in parts for value in part], dtype=dtype)


def _spread(rows: Sequence[Row], advantages: Sequence[Advantage | None], device: torch.device) -> Tensor:
    """Each sample's advantage at the places of its tokens."""
    figures = [0.0 if advantage is None else advantage for advantage in advantages]
    parts = [
        torch.as_tensor(figure, dtype=torch.float32, device=device).expand(row.count)
        for row, figure in zip(rows, figures, strict=True)
    ]
    return torch.cat([torch.zeros(0, device=device), *parts])


def _versions(sample: Sample) -> Iterator[int]:
    for span in sample.spans:
        yield from repeat(span.version, span.end - span.start)
