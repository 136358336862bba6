"""The engines that the conformance suite examines."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from infra.process import wait_until
from tests.support.engines import TINY_MODEL, ServedFolder, altered_copy, embedded_engine


@pytest.fixture(scope="session")
def tiny_qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 with grouped queries, query norms and an untied head."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=False,
        initializer_range=0.1,
        eos_token_id=2,
    )
    folder = tmp_path_factory.mktemp("tiny-qwen3")
    Qwen3ForCausalLM(config).save_pretrained(folder)
    shutil.copy(TINY_MODEL / "tokenizer.json", folder)
    return folder


@pytest.fixture(scope="session", params=["llama", "qwen3"])
def server(
    request: pytest.FixtureRequest, tiny_qwen3: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedFolder]:
    """A server of each family; another kind of engine is examined by yielding it here."""
    folder = TINY_MODEL if request.param == "llama" else tiny_qwen3
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with embedded_engine(folder, log, context_length=2048) as served:
        yield served


@pytest.fixture
def engine(server: ServedFolder) -> Iterator[ServedFolder]:
    """The server, stamped 0 and given back as it was: idle, not paused, with its own weights."""
    server.client.stamp(0)
    yield server
    server.client.resume()
    server.client.abort()
    wait_until(lambda: not server.busy(), 10, "the end of all requests", every_s=0.01)
    server.client.update_from_disk(server.folder)


@pytest.fixture
def changed(engine: ServedFolder, tmp_path: Path) -> Path:
    """A checkpoint of the engine's architecture with other weights."""
    torch.manual_seed(1)
    return altered_copy(
        engine.folder, tmp_path / "changed", lambda name, t: t + 0.2 * t.std() * torch.randn_like(t)
    )
