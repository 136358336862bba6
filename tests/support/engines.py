"""Running engines, checkpoints to serve, and transformers as the reference."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from configs.engine import EmbeddedEngine, EngineConfig
from infra.engines.client import EngineClient, EngineRefused, Generation, SamplingParams
from infra.engines.launch import launch
from infra.process import LOOPBACK, free_port, log_tail, spawn, stop_tree, wait_until

ROOT = Path(__file__).parents[2]
TINY_MODEL = ROOT / "configs/models/tiny-arithmetic"
SGLANG_PYTHON = ROOT / ".venv-sglang/bin/python"
"""Where `make sglang-env` puts SGLang."""
RUNNING_PROMPT = [5, 6, 7]
RUNNING_TEMPERATURE = 3.0
"""High enough that a long output does not fall into a certain repetition."""
_FIRST_TOKENS_S = 0.3


@dataclass(frozen=True)
class ServedFolder:
    """An engine and the checkpoint folder that it serves."""

    client: EngineClient
    folder: Path

    def busy(self) -> bool:
        """Whether a request is running or waiting."""
        try:
            self.client.flush_cache()
        except EngineRefused:
            return True
        return False

    @contextmanager
    def running(self, tokens: int, prompts: int = 1) -> Iterator["Future[list[Generation]]"]:
        """A request of `tokens` new tokens that has some already; what is left of it at the end is aborted.

        Its prompts have the ids running-0, running-1 and so on.
        """
        params = SamplingParams(
            max_new_tokens=tokens, ignore_eos=True, sampling_seed=1, temperature=RUNNING_TEMPERATURE
        )
        ids = [f"running-{number}" for number in range(prompts)]
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(self.client.generate, [RUNNING_PROMPT] * prompts, [params] * prompts, ids)
            try:
                wait_until(self.busy, 10, "the request", every_s=0.005)
                time.sleep(_FIRST_TOKENS_S)
                yield future
            finally:
                self.client.resume()
                self.client.abort()


@contextmanager
def running_engine(config: EngineConfig, folder: Path, log: Path) -> Iterator[ServedFolder]:
    """An engine of any kind on a free port."""
    port = free_port()
    server = launch(config, folder, LOOPBACK, port)
    process = spawn(server.command, log, server.env)
    client = EngineClient(f"http://127.0.0.1:{port}", timeout_s=60)
    try:
        wait_until(
            lambda: client.healthy() or process.poll() is not None,
            config.start_timeout_s,
            f"the engine ({log})",
        )
        assert process.poll() is None, log_tail(log)
        yield ServedFolder(client, folder)
    finally:
        client.close()
        stop_tree(process.pid)


@contextmanager
def tiny_engine(folder: Path, version: int) -> Iterator[EngineClient]:
    """A client of a new engine of the tiny model, stamped `version`; its log goes to the folder."""
    with running_engine(EmbeddedEngine(), TINY_MODEL, folder / "engine.log") as served:
        served.client.stamp(version)
        yield served.client


def altered_copy(
    source: Path, target: Path, alter: Callable[[str, torch.Tensor], torch.Tensor | None]
) -> Path:
    """A copy of a checkpoint with each tensor altered, or left out where `alter` gives None."""
    shutil.copytree(source, target)
    tensors = load_file(source / "model.safetensors")
    altered = {name: alter(name, tensor) for name, tensor in tensors.items()}
    kept = {name: tensor for name, tensor in altered.items() if tensor is not None}
    save_file(kept, target / "model.safetensors", metadata={"format": "pt"})
    return target


@torch.no_grad()
def reference_logprobs(folder: Path, tokens: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities of tokens[1:] under transformers, fp32: one sequence, no padding, no cache."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    logits_TV = model(torch.tensor([list(tokens)])).logits[0, :-1]
    logprobs_TV = torch.log_softmax(logits_TV / temperature, -1)
    return logprobs_TV.gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0]


def response_logprobs(
    folder: Path, prompt: Sequence[int], output: Generation, temperature: float = 1.0
) -> torch.Tensor:
    """The reference's log-probabilities of an output's tokens."""
    return reference_logprobs(folder, [*prompt, *output.tokens], temperature)[len(prompt) - 1 :]


def soon(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False
