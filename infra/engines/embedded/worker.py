"""The one thread that owns the model: requests first come first served, commands between their steps."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

from infra.engines.embedded.decode import Notice, decode
from infra.engines.embedded.model import ServedModel
from infra.engines.embedded.scoring import token_logprobs
from infra.engines.embedded.sequence import ABORTED, Sequence
from infra.engines.protocol import PauseMode, WeightVersionSpan

T = TypeVar("T")


class _Task:
    """A call whose outcome goes into a future."""

    def __init__(self, action: Callable[[], Any], when_quiet: bool = False) -> None:
        self.when_quiet = when_quiet
        """Wait for the running request to end, unless generation is paused."""
        self.future: Future[Any] = Future()
        self._action = action

    def __call__(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._action())
        except Exception as error:  # whoever asked gets it, and the thread lives on
            self.future.set_exception(error)


class _Request(_Task):
    """Sequences that are generated together."""

    def __init__(self, action: Callable[[], Any], sequences: list[Sequence]) -> None:
        super().__init__(action)
        self.sequences = sequences

    @property
    def aborted(self) -> bool:
        return all(sequence.aborted for sequence in self.sequences)


class Worker:
    """Serves requests and commands. All public methods may be called from any thread."""

    def __init__(self, model: ServedModel, batch_size: int) -> None:
        self._model = model
        self._batch_size = batch_size
        self._changed = threading.Condition()
        self._requests: deque[_Request] = deque()
        self._running: _Request | None = None
        self._commands: deque[_Task] = deque()
        self._paused = False
        self._retracted = False
        self._recompute = False
        self._abort_asked = False
        self.steps = 0
        """Steps and tasks done so far: a sign of life."""
        threading.Thread(target=self._loop, name="engine-worker", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a request is running or waiting."""
        with self._changed:
            return self._running is not None or bool(self._requests)

    @property
    def paused(self) -> bool:
        """Whether generation is paused."""
        return self._paused

    @property
    def holds_old_keys(self) -> bool:
        """Whether, in a pause, a request will go on from the keys and values that it has."""
        with self._changed:
            return self._paused and self._running is not None and not self._retracted

    def generate(self, sequences: list[Sequence]) -> "Future[None]":
        """Fill in the sequences, in chunks of the batch size in the order given."""
        request = _Request(lambda: self._serve(sequences), sequences)
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()
        return request.future

    def command(self, action: Callable[[], T], when_quiet: bool = False) -> "Future[T]":
        """Run an action on the worker thread between two steps; commands keep their order.

        With `when_quiet` it waits for the running request to end, so that no output sees two weights, unless
        generation is paused.
        """
        task = _Task(action, when_quiet)
        with self._changed:
            self._commands.append(task)
            self._changed.notify_all()
        return task.future

    def pause(self, mode: PauseMode) -> None:
        """Stop before the next token; new requests wait."""
        with self._changed:
            self._paused = True
            if mode == "retract":
                self._retracted = self._recompute = True
        if mode == "abort":
            self.abort(lambda sequence: True)

    def resume(self) -> None:
        """End a pause."""
        with self._changed:
            self._paused = self._retracted = False
            self._changed.notify_all()

    def abort(self, chosen: Callable[[Sequence], bool]) -> None:
        """End the chosen sequences with the tokens that they have."""
        with self._changed:
            active = [self._running] if self._running else []
            for request in [*active, *self._requests]:
                for sequence in request.sequences:
                    sequence.aborted |= chosen(sequence)
            self._abort_asked = True
            self._changed.notify_all()

    def _loop(self) -> None:
        while True:
            self._next_task()()
            self.steps += 1
            with self._changed:
                self._running = None

    def _next_task(self) -> _Task:
        with self._changed:
            while True:
                if self._commands:
                    return self._commands.popleft()
                for request in self._requests:
                    if not self._paused or request.aborted:
                        self._requests.remove(request)
                        self._running = request
                        self._recompute = False  # it has nothing yet
                        return request
                self._changed.wait()

    def _between_steps(self) -> Notice:
        self.steps += 1
        while True:
            with self._changed:
                command = self._due_command()
                if command is None:
                    if self._paused and not self._abort_asked:
                        self._changed.wait()
                        continue
                    notice = Notice(self._abort_asked, self._paused, self._recompute)
                    self._abort_asked = self._recompute = False
                    return notice
            command()

    def _due_command(self) -> _Task | None:
        if self._commands and (self._paused or not self._commands[0].when_quiet):
            return self._commands.popleft()
        return None

    @torch.inference_mode()
    def _serve(self, sequences: list[Sequence]) -> None:
        for start in range(0, len(sequences), self._batch_size):
            chunk = sequences[start : start + self._batch_size]
            self._score([sequence for sequence in chunk if sequence.score_from is not None])
            drawn = [s for s in chunk if s.params.max_new_tokens > 0 and not s.aborted]
            if drawn:
                decode(self._model, drawn, self._between_steps)
            for sequence in chunk:
                if sequence.aborted and sequence.finish is None:
                    sequence.finish = ABORTED
                if not sequence.spans:
                    sequence.spans = [WeightVersionSpan(version=self._model.version, start=0, end=0)]

    def _score(self, sequences: list[Sequence]) -> None:
        scores = token_logprobs(self._model, [sequence.prompt for sequence in sequences])
        for sequence, logprobs in zip(sequences, scores, strict=True):
            sequence.prompt_logprobs = logprobs[sequence.score_from :]
