"""An embedded engine in this process that a test can make go wrong, reached over HTTP as any other."""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
import uvicorn
from transformers.cache_utils import DynamicCache

from infra.engines.client import EngineClient
from infra.engines.embedded.app import create_app
from infra.engines.embedded.engine import Engine
from infra.engines.embedded.model import ServedModel
from infra.engines.embedded.sequence import Sequence
from infra.process import free_port, wait_until

Tensors = Mapping[str, torch.Tensor]
CONTEXT_LENGTH = 64


@dataclass
class FaultyEngine:
    """What it makes of weights and prefixes; without faults it is the embedded engine."""

    engine: Engine
    client: EngineClient
    alter: Callable[[Tensors], Tensors] | None = None
    """What it loads instead of the tensors of an update, whose success it tells all the same."""
    kept_prefixes: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Sequences whose first so many tokens keep their keys and values over updates, once they were scored."""

    def __post_init__(self) -> None:
        self.model = self.engine.model
        self._load, self.model.weights.load = self.model.weights.load, self.load
        self._score, self.engine.worker._score = self.engine.worker._score, self.score
        self._caches: dict[tuple[int, ...], DynamicCache] = {}

    def heal(self, weights: Tensors) -> None:
        """End all faults, and hold the given weights."""
        self.alter = None
        self.kept_prefixes = {}
        self._caches = {}
        self._load(weights)

    def load(self, tensors: Tensors) -> None:
        """In place of LiveWeights.load."""
        self._load(self.alter(tensors) if self.alter else tensors)

    def score(self, sequences: list[Sequence]) -> None:
        """In place of the worker's; prefixes come from the cache as far as SGLang takes them from its own."""
        self._score(sequences)
        for sequence in sequences:
            tokens, start = sequence.prompt, sequence.score_from or 0
            if kept := min(self.kept_prefixes.get(tokens, 0), start):
                cache = copy.deepcopy(self._prefix(tokens[:kept]))
                logprobs_TV = torch.log_softmax(self._logits(tokens[kept:], kept, cache), -1)
                targets_T1 = torch.tensor(tokens[kept + 1 :])[:, None]
                sequence.prompt_logprobs = logprobs_TV[:-1].gather(-1, targets_T1)[start - kept :, 0].tolist()

    def _prefix(self, tokens: tuple[int, ...]) -> DynamicCache:
        if tokens not in self._caches:
            self._caches[tokens] = DynamicCache()
            self._logits(tokens, 0, self._caches[tokens])
        return self._caches[tokens]

    def _logits(self, tokens: tuple[int, ...], first: int, cache: DynamicCache) -> torch.Tensor:
        """fp32 [T, V] of tokens at positions from `first` on, whose keys and values join the cache."""
        positions_1T = torch.arange(first, first + len(tokens))[None]
        return self.model.logits(torch.tensor([tokens]), positions_1T, None, cache, last=0)[0]


@contextmanager
def faulty_engine(folder: Path) -> Iterator[FaultyEngine]:
    """An engine of the folder's model."""
    engine = Engine(ServedModel(folder, torch.float32, torch.device("cpu"), CONTEXT_LENGTH), batch_size=8)
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(create_app(engine), port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    client = EngineClient(f"http://127.0.0.1:{port}", timeout_s=20)
    thread.start()
    try:
        wait_until(client.healthy, 10, "the engine", every_s=0.01)
        yield FaultyEngine(engine, client)
    finally:
        client.close()
        server.should_exit = True
        thread.join()
