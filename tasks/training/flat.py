"""A rollout batch laid out flat: one place for each response token of each sample, in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import torch
from torch import Tensor

from tasks.model.megatron.microbatches import Row, to_rows
from tasks.record.samples import RolloutBatch, Sample
from tasks.training.advantages import grpo_advantages


@dataclass(frozen=True)
class FlatBatch:
    """What training needs of a batch; N counts response tokens."""

    rows: list[Row]
    """One for each sample."""
    usable: list[list[Row]]
    """For each group with a spread of rewards, the rows of its graded samples that have response tokens."""
    rollout_logprobs_N: Tensor
    advantages_N: Tensor
    """Zero at tokens of samples that are not usable."""
    on_version_N: Tensor
    """Whether the trainer's weight version generated the token."""

    @property
    def tokens(self) -> int:
        """The number N of response tokens."""
        return len(self.rollout_logprobs_N)

    def minibatches(self, count: int) -> list[list[Row]]:
        """At most `count` parts of the usable rows, by whole groups, as even as can be; none is empty."""
        groups = len(self.usable)
        bounds = [index * groups // count for index in range(count + 1)]
        parts = [self.usable[start:stop] for start, stop in pairwise(bounds)]
        return [[row for group in part for row in group] for part in parts if part]


def flatten(batch: RolloutBatch, version: int, device: torch.device) -> FlatBatch:
    """Lay a graded batch out; `version` is the trainer's weight version before the step."""
    samples = list(batch.samples())
    rows = to_rows(
        [(sample.prompt_tokens + sample.response_tokens, len(sample.prompt_tokens)) for sample in samples]
    )
    remaining = iter(rows)
    advantages: list[float] = []
    usable: list[list[Row]] = []
    for group in batch.groups:
        found = grpo_advantages([sample.reward for sample in group.samples])
        values = found or (None,) * len(group.samples)
        of_group = zip(islice(remaining, len(values)), values, strict=True)
        advantages += [value or 0.0 for value in values]
        if used := [row for row, value in of_group if value is not None and row.count]:
            usable.append(used)
    counts = torch.tensor([row.count for row in rows], dtype=torch.long)
    return FlatBatch(
        rows,
        usable,
        rollout_logprobs_N=_flat([sample.rollout_logprobs for sample in samples]).to(device),
        advantages_N=torch.tensor(advantages).repeat_interleave(counts).to(device),
        on_version_N=_flat([_on_version(sample, version) for sample in samples]).bool().to(device),
    )


def _flat(parts: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor([value for part in parts for value in part], dtype=torch.float32)


def _on_version(sample: Sample, version: int) -> list[bool]:
    return [span.version == version for span in sample.spans for _ in range(span.start, span.end)]
