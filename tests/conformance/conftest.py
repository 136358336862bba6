"""The engines that the conformance suite examines: of each kind that --engines names, one a model family."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from configs.engine import EmbeddedEngine, EngineConfig, SGLangEngine
from infra.process import wait_until
from tests.support.engines import SGLANG_PYTHON, TINY_MODEL, ServedFolder, altered_copy, running_engine

CONTEXT_LENGTH = 2048


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", metafunc.config.getoption("--engines").split(","), scope="session")


@pytest.fixture(scope="session", params=["llama", "mixture"])
def family(request: pytest.FixtureRequest) -> str:
    """Model family; a test that one family suffices for names it."""
    return request.param


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, with positions for long outputs."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    shutil.copytree(TINY_MODEL, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT_LENGTH}))
    return folder


@pytest.fixture(scope="session")
def tiny_mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3-MoE with grouped queries, query norms and an untied head."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(  # type: ignore[call-arg]
        vocab_size=320,
        hidden_size=64,
        moe_intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        tie_word_embeddings=False,
        initializer_range=0.1,
        max_position_embeddings=CONTEXT_LENGTH,
        eos_token_id=2,
    )
    folder = tmp_path_factory.mktemp("models") / "tiny-mixture"
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(TINY_MODEL / name, folder)
    return folder


@pytest.fixture(scope="session")
def server(
    kind: str, family: str, tiny_llama: Path, tiny_mixture: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedFolder]:
    """A running engine."""
    folder = tiny_llama if family == "llama" else tiny_mixture
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with running_engine(_engine(kind, family), folder, log) as served:
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
    """A model folder of the engine's architecture with other weights."""
    torch.manual_seed(1)
    return altered_copy(
        engine.folder, tmp_path / "changed", lambda name, t: t + 0.2 * t.std() * torch.randn_like(t)
    )


def _engine(kind: str, family: str) -> EngineConfig:
    if kind == "embedded":
        return EmbeddedEngine(context_length=CONTEXT_LENGTH)
    return SGLangEngine(
        kind="sglang",
        python=SGLANG_PYTHON,
        device="cpu",
        dtype="float32",
        context_length=CONTEXT_LENGTH,
        max_total_tokens=2**17,
        routed_experts=family == "mixture",
    )
