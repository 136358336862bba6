"""Decoding a batch of fixed composition in lock step, so that its result depends on nothing else."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from infra.engines.embedded.kv import Append, KeyValues, Prefill
from infra.engines.embedded.model import ServedModel
from infra.engines.embedded.sampling import draw, uniforms
from infra.engines.embedded.sequence import ABORTED, Sequence
from infra.engines.protocol import FinishReason, WeightVersionSpan

_PREFILL_TOKENS = 8192
"""Most prompt tokens, padding included, of one forward pass."""
_IDLE_SHARE = 8
"""Rows that have ended are dropped once they are more than one in so many."""


class Notice(NamedTuple):
    """What happened between two steps."""

    aborted: bool = False
    """Some sequence may have been aborted."""
    paused: bool = False
    """Decoding must not go on yet: ask again."""
    recompute: bool = False
    """Keys and values must be computed anew."""


BetweenSteps = Callable[[], Notice]
"""Called before each forward pass; waits out a pause, and weights may change inside."""


def decode(model: ServedModel, sequences: list[Sequence], between_steps: BetweenSteps) -> None:
    """Fill in what is drawn for every sequence (at least one), and where it ends."""
    batch = _Batch(model, sequences)
    logits_BV = batch.prefill_prompts()
    while True:
        batch.sample(logits_BV)
        recompute = batch.wait(between_steps)
        if batch.finished:
            break
        batch.compact()
        logits_BV = batch.prefill_all() if recompute else batch.forward()
    batch.write_results()


class _Batch:
    """State of a batch. Rows are the running sequences: row r is sequences[self._members[r]].

    Shape letters: S sequences, B rows, P prompt columns, N output positions, V vocabulary, K columns so far,
    L layers, E experts a token.
    Prompts are padded on the left to P columns; output position n of every row stands in column P + n.
    """

    def __init__(self, model: ServedModel, sequences: list[Sequence]) -> None:
        self._model = model
        self._sequences = sequences
        device = model.device
        most_new = max(sequence.params.max_new_tokens for sequence in sequences)
        self._width = max(len(sequence.prompt) for sequence in sequences)
        self._step = 0
        self._versions: list[tuple[int, str]] = []
        self._members = torch.arange(len(sequences), device=device)
        self._live = torch.ones(len(sequences), dtype=torch.bool, device=device)
        self._pads = torch.tensor([self._width - len(s.prompt) for s in sequences], device=device)
        self._tokens_SK = torch.zeros(len(sequences), self._width + most_new, dtype=torch.long, device=device)
        for row, sequence in enumerate(sequences):
            self._tokens_SK[row, self._pads[row] : self._width] = torch.tensor(sequence.prompt)
        self._logprobs_SN = torch.zeros(len(sequences), most_new, device=device)
        self._lengths = [0] * len(sequences)
        self._temperatures_S = torch.tensor([s.params.temperature for s in sequences], device=device)
        self._uniforms_SN = uniforms([s.seed for s in sequences], most_new).to(device)
        self._limits_S = torch.tensor([s.params.max_new_tokens for s in sequences], device=device)
        self._heeds_end_S = torch.tensor([not s.params.ignore_eos for s in sequences], device=device)
        self._end_tokens = torch.tensor(model.end_tokens, dtype=torch.long, device=device)
        self._with_stops = [number for number, s in enumerate(sequences) if s.params.stop_strings]
        self._storage = KeyValues(len(sequences), self._width + most_new - 1)
        self._mask_B11K = _padding_mask(self._pads, self._width + most_new, model.dtype)
        self._experts_SKLE = None
        if model.routing is not None and any(sequence.wants_experts for sequence in sequences):
            self._experts_SKLE = model.routing.empty(len(sequences), self._width + most_new)

    @property
    def finished(self) -> bool:
        """Whether every sequence has ended."""
        return not bool(self._live.any())

    def prefill_prompts(self) -> torch.Tensor:
        """Run the prompts, equal ones once; logits [B, V] of the first output position."""
        first_of: dict[tuple[int, ...], int] = {}
        sources = [first_of.setdefault(s.prompt, len(first_of)) for s in self._sequences]
        firsts = [sources.index(number) for number in range(len(first_of))]
        return self._prefill(torch.tensor(firsts), torch.tensor(sources), self._width)

    def prefill_all(self) -> torch.Tensor:
        """Compute keys and values of everything so far anew; logits [B, V] of the next position."""
        rows = torch.arange(len(self._members))
        return self._prefill(rows, rows, self._width + self._step)

    def forward(self) -> torch.Tensor:
        """Run the newest token of every row; logits [B, V] of the next position."""
        self._note_version()
        column = self._width + self._step - 1
        mask = None if self._mask_B11K is None else self._mask_B11K[..., : column + 1]
        rows = torch.arange(len(self._members))
        logits_B1V = self._model.logits(
            self._tokens_SK[self._members, column][:, None],
            (column - self._pads)[:, None],
            mask,
            Append(self._storage, len(rows), column),
            last=1,
        )
        self._note_experts(rows, rows, column, column + 1)
        return logits_B1V[:, 0]

    def sample(self, logits_BV: torch.Tensor) -> None:
        """Draw the next token of every row, and end the rows that it completes."""
        members, step = self._members, self._step
        tokens_B, logprobs_B = draw(
            logits_BV, self._temperatures_S[members], self._uniforms_SN[members, step]
        )
        self._tokens_SK[members, self._width + step] = tokens_B
        self._logprobs_SN[members, step] = logprobs_B
        self._step += 1
        at_end_B = torch.isin(tokens_B, self._end_tokens) & self._heeds_end_S[members]
        at_limit_B = self._limits_S[members] <= self._step
        for row in (self._live & (at_end_B | at_limit_B)).nonzero()[:, 0].tolist():
            token = int(tokens_B[row])
            stopped = FinishReason(type="stop", matched=token)
            self._end(row, stopped if at_end_B[row] else FinishReason(type="length", length=self._step))
        if self._with_stops:
            self._end_at_stop_strings()

    def wait(self, between_steps: BetweenSteps) -> bool:
        """Let others in between two steps, and end aborted rows; whether to compute KV anew."""
        recompute = False
        while not self.finished:
            notice = between_steps()
            recompute |= notice.recompute
            if notice.aborted:
                for row in self._live.nonzero()[:, 0].tolist():
                    if self._sequences[int(self._members[row])].aborted:
                        self._end(row, ABORTED)
            if not notice.paused:
                break
        return recompute

    def compact(self) -> None:
        """Drop ended rows, once they are enough to be worth the copy."""
        rows = self._live.nonzero()[:, 0]
        if (len(self._live) - len(rows)) * _IDLE_SHARE <= len(self._live):
            return
        self._storage.select(rows)
        self._members, self._pads, self._live = self._members[rows], self._pads[rows], self._live[rows]
        self._mask_B11K = None if self._mask_B11K is None else self._mask_B11K[rows]

    def write_results(self) -> None:
        """Hand each sequence what was drawn for it."""
        outputs_SN = self._tokens_SK[:, self._width :].tolist()
        logprobs_SN = self._logprobs_SN.tolist()
        for number, sequence in enumerate(self._sequences):
            length = self._lengths[number]
            sequence.output = outputs_SN[number][:length]
            sequence.logprobs = logprobs_SN[number][:length]
            sequence.spans = _spans(self._versions, length)
            if sequence.wants_experts and self._experts_SKLE is not None:
                begin, end = self._width - len(sequence.prompt), self._width + length - 1
                sequence.routed_experts_TLE = self._experts_SKLE[number, begin:end].clone()

    def _prefill(self, firsts: torch.Tensor, sources: torch.Tensor, width: int) -> torch.Tensor:
        """Run rows `firsts`; the keys, values and logits of firsts[sources[r]] become those of row r."""
        self._note_version()
        logits: list[torch.Tensor] = []
        begin = 0
        for part in firsts.split(max(1, _PREFILL_TOKENS // width)):
            rows = ((sources >= begin) & (sources < begin + len(part))).nonzero()[:, 0]
            pads_B = self._pads[part]
            positions_BT = (torch.arange(width, device=pads_B.device) - pads_B[:, None]).clamp_(min=0)
            logits.append(
                self._model.logits(
                    self._tokens_SK[self._members[part], :width],
                    positions_BT,
                    _causal_mask(pads_B, width, self._model.dtype),
                    Prefill(self._storage, rows, sources[rows] - begin),
                    last=1,
                )[:, 0]
            )
            self._note_experts(rows, sources[rows] - begin, 0, width)
            begin += len(part)
        return torch.cat(logits)[sources]

    def _note_experts(self, rows: torch.Tensor, sources: torch.Tensor, begin: int, end: int) -> None:
        """Keep the choices of the newest pass: its row sources[i] ran columns [begin, end) of row rows[i]."""
        if self._experts_SKLE is None or self._model.routing is None:
            return
        passed = int(sources.max()) + 1
        choices_BTLE = self._model.routing.newest(passed, end - begin)
        self._experts_SKLE[self._members[rows].cpu(), begin:end] = choices_BTLE[sources.cpu()]

    def _note_version(self) -> None:
        if not self._versions or self._versions[-1][1] != self._model.version:
            self._versions.append((self._step, self._model.version))

    def _end(self, row: int, reason: FinishReason) -> None:
        number = int(self._members[row])
        self._live[row] = False
        self._lengths[number] = self._step
        self._sequences[number].finish = reason

    def _end_at_stop_strings(self) -> None:
        row_of = {number: row for row, number in enumerate(self._members.tolist())}
        running = [number for number in self._with_stops if self._sequences[number].finish is None]
        rows = [row_of[number] for number in running]
        outputs = self._tokens_SK[running, self._width : self._width + self._step].tolist()
        stops = [self._sequences[number].params.stop_strings for number in running]
        for row, matched in zip(rows, self._model.text.find_stops(outputs, stops), strict=True):
            if matched is not None:
                self._end(row, FinishReason(type="stop", matched=matched))


def _padding_mask(pads_B: torch.Tensor, columns: int, dtype: torch.dtype) -> torch.Tensor | None:
    """[B, 1, 1, columns] to add to attention scores: hides the padding; None when there is none."""
    if not bool(pads_B.any()):
        return None
    hidden_BK = torch.arange(columns, device=pads_B.device) < pads_B[:, None]
    return _additive(hidden_BK, dtype)[:, None, None]


def _causal_mask(pads_B: torch.Tensor, width: int, dtype: torch.dtype) -> torch.Tensor:
    """[B, 1, width, width] to add to attention scores: hides the future and the padding.

    A padding position sees itself, since a row that sees nothing would hold NaN.
    """
    columns = torch.arange(width, device=pads_B.device)
    future_TK = columns[None, :] > columns[:, None]
    padding_BTK = (columns < pads_B[:, None])[:, None, :] & (columns[None, :] != columns[:, None])
    return _additive(future_TK | padding_BTK, dtype)[:, None]


def _additive(hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
        hidden, torch.finfo(dtype).min
    )


def _spans(versions: list[tuple[int, str]], length: int) -> list[WeightVersionSpan]:
    """Spans over [0, length) from (first position, version); one empty span for an empty output."""
    ends = [start for start, _ in versions[1:]] + [length]
    spans = [
        WeightVersionSpan(version=version, start=start, end=min(end, length))
        for (start, version), end in zip(versions, ends, strict=True)
        if start < length
    ]
    return spans or [WeightVersionSpan(version=versions[-1][1], start=0, end=0)]
