"""What a batch says of the weight versions that generated it."""

from collections import defaultdict

import torch
from torch import Tensor

from tasks.record.credit import VersionCredit
from tasks.record.samples import RolloutBatch, Sample


def credits_in(
    batch: RolloutBatch, versions_N: Tensor, abs_diff_N: Tensor, entropy_N: Tensor
) -> tuple[VersionCredit, ...]:
    """The credit of each version in a batch of N response tokens, by version.

    versions_N is the version that generated each token, abs_diff_N |trainer - rollout| of its log-probability
    and entropy_N the entropy of the trainer's distribution there, both in nats.
    """
    shares: dict[int, list[tuple[Sample, float]]] = defaultdict(list)
    for sample in batch.samples():
        for version, share in _shares(sample).items():
            shares[version].append((sample, share))
    return tuple(
        _credit(version, mine, abs_diff_N[versions_N == version], entropy_N[versions_N == version])
        for version, mine in sorted(shares.items())
    )


def _shares(sample: Sample) -> dict[int, float]:
    """The share of a sample's tokens by version; empty for a response without tokens."""
    shares: dict[int, float] = defaultdict(float)
    for span in sample.spans:
        if span.end > span.start:
            shares[span.version] += (span.end - span.start) / len(sample.response_tokens)
    return shares


def _credit(
    version: int, shares: list[tuple[Sample, float]], abs_diff_N: Tensor, entropy_N: Tensor
) -> VersionCredit:
    samples = sum(share for _, share in shares)
    rewarded = [(sample.reward, share) for sample, share in shares if sample.reward is not None]
    graded = sum(share for _, share in rewarded)
    return VersionCredit(
        version=version,
        tokens=len(abs_diff_N),
        samples=samples,
        graded=graded,
        reward=sum(reward * share for reward, share in rewarded) / graded if graded else None,
        length=sum(len(sample.response_tokens) * share for sample, share in shares) / samples,
        divergence=abs_diff_N.mean(dtype=torch.float64).item(),
        entropy=entropy_N.mean(dtype=torch.float64).item(),
    )
