"""Log-probabilities of given tokens."""

from collections.abc import Iterator, Sequence

import torch

from infra.engines.embedded.model import ServedModel
from infra.engines.embedded.sampling import NonFiniteLogits

_FORWARD_TOKENS = 8192
_FORWARD_LOGITS = 2**26
"""Most tokens and most logits of one forward pass, padding included: 256 MiB of fp32 logits."""


def token_logprobs(model: ServedModel, sequences: Sequence[Sequence[int]]) -> Iterator[list[float]]:
    """For each sequence, log-probabilities at temperature 1 of tokens[1:] given what precedes each."""
    for batch in _batches(sequences, min(_FORWARD_TOKENS, _FORWARD_LOGITS // model.vocab_size)):
        yield from _score(model, batch)


def _batches(sequences: Sequence[Sequence[int]], most_tokens: int) -> Iterator[list[Sequence[int]]]:
    batch: list[Sequence[int]] = []
    for sequence in sequences:
        width = max(len(member) for member in [*batch, sequence])
        if batch and width * (len(batch) + 1) > most_tokens:
            yield batch
            batch = []
        batch.append(sequence)
    if batch:
        yield batch


def _score(model: ServedModel, batch: list[Sequence[int]]) -> list[list[float]]:
    width = max(len(tokens) for tokens in batch)
    padded = [[*tokens, *[0] * (width - len(tokens))] for tokens in batch]  # padding comes after what is read
    tokens_BT = torch.tensor(padded, device=model.device)
    positions_BT = torch.arange(width, device=model.device).expand(len(batch), -1)
    logits_BTV = model.logits(tokens_BT, positions_BT, None, None, last=0)[:, :-1]
    chosen_BT = logits_BTV.gather(-1, tokens_BT[:, 1:, None])[..., 0] - logits_BTV.logsumexp(-1)
    if not bool(torch.isfinite(chosen_BT).all()):
        raise NonFiniteLogits("the model gives non-finite logits: load sound weights")
    return [row[: len(tokens) - 1] for row, tokens in zip(chosen_BT.tolist(), batch, strict=True)]
