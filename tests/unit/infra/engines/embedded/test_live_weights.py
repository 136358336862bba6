"""Hugging Face's names and in-place replacement, where transformers stores tensors fused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from infra.engines.checksum import tensor_hash
from infra.engines.embedded.decode import Notice, decode
from infra.engines.embedded.model import ServedModel
from infra.engines.embedded.sequence import Sequence
from infra.engines.protocol import SamplingParams
from infra.weights_folder import WeightsMismatch
from tests.support.engines import altered_copy, reference_logprobs


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random mixture of experts with a tied head."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(  # type: ignore[call-arg]
        vocab_size=100,
        hidden_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    folder = tmp_path_factory.mktemp("mixture")
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def served(mixture: Path) -> ServedModel:
    return ServedModel(mixture, torch.float32, torch.device("cpu"), context_length=64)


def _hashes(folder: Path) -> dict[str, str]:
    return {name: tensor_hash(tensor) for name, tensor in load_file(folder / "model.safetensors").items()}


def test_experts_are_served_under_the_names_of_the_folder(served: ServedModel, mixture: Path) -> None:
    checksums = served.weights.checksums()
    assert checksums == _hashes(mixture)
    assert "model.layers.0.mlp.experts.3.up_proj.weight" in checksums
    assert "lm_head.weight" not in checksums  # tied


def test_one_expert_is_replaced_in_place(served: ServedModel, mixture: Path, tmp_path: Path) -> None:
    name = "model.layers.1.mlp.experts.2.gate_proj.weight"
    changed = altered_copy(mixture, tmp_path / "changed", lambda n, t: t + 1 if n == name else t)
    served.weights.load({name: load_file(changed / "model.safetensors")[name]})
    assert served.weights.checksums() == _hashes(changed)
    _assert_decodes_like_transformers(served, changed)


def test_all_weights_are_replaced_in_place(served: ServedModel, mixture: Path, tmp_path: Path) -> None:
    changed = altered_copy(mixture, tmp_path / "changed", lambda n, t: t * 1.1)
    served.load_folder(changed)
    assert served.weights.checksums() == _hashes(changed)
    _assert_decodes_like_transformers(served, changed)


def test_one_misfit_among_many_changes_nothing(served: ServedModel, mixture: Path) -> None:
    tensors = {name: tensor + 1 for name, tensor in load_file(mixture / "model.safetensors").items()}
    tensors["model.norm.weight"] = torch.ones(3)
    with pytest.raises(WeightsMismatch, match=r"model\.norm\.weight"):
        served.weights.load(tensors)
    assert served.weights.checksums() == _hashes(mixture)


def test_sharded_folders_are_read(served: ServedModel, mixture: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(mixture)
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    served.load_folder(tmp_path)
    assert served.weights.checksums() == _hashes(mixture)
    next(tmp_path.glob("model-*.safetensors")).unlink()
    with pytest.raises(WeightsMismatch, match="is missing"):
        served.load_folder(tmp_path)


@torch.inference_mode()
def _assert_decodes_like_transformers(served: ServedModel, folder: Path) -> None:
    prompt = (5, 9, 30)
    sequence = Sequence("s", prompt, SamplingParams(max_new_tokens=12, ignore_eos=True), seed=1)
    decode(served, [sequence], Notice)
    expected = reference_logprobs(folder, [*prompt, *sequence.output])[len(prompt) - 1 :]
    torch.testing.assert_close(torch.tensor(sequence.logprobs), expected, atol=1e-5, rtol=0)
