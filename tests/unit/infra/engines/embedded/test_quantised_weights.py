"""Quantised models as the embedded engine holds them: what came, and what it computes with."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import PretrainedConfig, Qwen3MoeConfig

from infra.engines.checksum import tensor_hash
from infra.engines.embedded.model import ServedModel
from infra.weights_folder import WeightsMismatch
from tests.support.engines import TINY_MODEL, altered_copy
from tests.support.models import MODELS, save_model
from tests.support.quantised import QUANTISED, dequantised_copy, quantised_copy

Tensors = dict[str, torch.Tensor]
WEIGHT = "model.layers.1.self_attn.k_proj.weight"
NORM = "model.norm.weight"


def tensors_of(folder: Path) -> Tensors:
    return load_file(folder / "model.safetensors")


def hashes(tensors: Tensors) -> dict[str, str]:
    return {name: tensor_hash(tensor) for name, tensor in tensors.items()}


def served(folder: Path) -> ServedModel:
    return ServedModel(folder, torch.float32, torch.device("cpu"), context_length=64)


@torch.inference_mode()
def logits(model: ServedModel) -> torch.Tensor:
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    return model.logits(tokens, torch.arange(8)[None], None, None, last=0)


@pytest.fixture
def engine(tmp_path: Path) -> ServedModel:
    """The tiny model by channel in fp8."""
    return served(quantised_copy(TINY_MODEL, tmp_path / "served", "fp8_channel"))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Other weights in the engine's format."""
    changed = altered_copy(TINY_MODEL, tmp_path / "changed", lambda name, t: t * 1.3 + 0.01)
    return quantised_copy(changed, tmp_path / "other", "fp8_channel")


def mixture() -> PretrainedConfig:
    """A tiny mixture of experts whose matrices have whole blocks of 32 columns."""
    return Qwen3MoeConfig.from_dict(MODELS["qwen3-moe"].to_dict() | {"moe_intermediate_size": 32})


@pytest.mark.parametrize("name", QUANTISED)
def test_it_holds_what_came_and_computes_with_the_dequantised_weights(name: str, tmp_path: Path) -> None:
    model = save_model(mixture(), tmp_path / "model")
    folder = quantised_copy(model, tmp_path / "quantised", name)
    engine = served(folder)

    assert engine.weights.checksums() == hashes(tensors_of(folder))
    plain = served(dequantised_copy(folder, tmp_path / "dequantised"))
    assert torch.equal(logits(engine), logits(plain))
    assert not torch.equal(logits(engine), logits(served(model)))


def test_a_folder_replaces_weights_and_scales(engine: ServedModel, other: Path) -> None:
    engine.load_folder(other)

    assert engine.weights.checksums() == hashes(tensors_of(other))
    assert torch.equal(logits(engine), logits(served(other)))


def test_parts_of_a_weight_may_come_one_after_another(engine: ServedModel, other: Path) -> None:
    for name, tensor in tensors_of(other).items():
        engine.weights.load({name: tensor})
    engine.weights.finish()

    assert engine.weights.checksums() == hashes(tensors_of(other))
    assert torch.equal(logits(engine), logits(served(other)))


@pytest.mark.parametrize(
    ("sent", "missing"), [(WEIGHT, f"{WEIGHT}_scale"), (f"{WEIGHT}_scale", WEIGHT)], ids=["weight", "scale"]
)
def test_a_weight_without_its_scale_is_refused_and_stays(
    engine: ServedModel, other: Path, sent: str, missing: str
) -> None:
    before = engine.weights.checksums(), logits(engine)
    engine.weights.load({sent: tensors_of(other)[sent]})

    with pytest.raises(WeightsMismatch, match=f"{sent} came without {missing}: "):
        engine.weights.finish()

    assert engine.weights.checksums() == before[0]
    assert torch.equal(logits(engine), before[1])
    engine.weights.load({missing: tensors_of(other)[missing]})  # what was refused is gone
    with pytest.raises(WeightsMismatch, match=f"{missing} came without {sent}: "):
        engine.weights.finish()


@pytest.mark.parametrize("name", [WEIGHT, f"{WEIGHT}_scale", NORM])
def test_a_tensor_in_another_dtype_is_named_and_changes_nothing(
    engine: ServedModel, other: Path, name: str
) -> None:
    before = engine.weights.checksums()
    tensors = tensors_of(other)
    tensors[name] = tensors[name].to(torch.bfloat16)

    with pytest.raises(WeightsMismatch, match=f"{name} is torch.bfloat16, the served model holds"):
        engine.weights.load(tensors)

    assert engine.weights.checksums() == before


def test_a_folder_in_another_format_is_refused(engine: ServedModel, tmp_path: Path) -> None:
    before = engine.weights.checksums()

    with pytest.raises(WeightsMismatch, match=r"weight is torch.int8, the served model holds torch.float8"):
        engine.load_folder(quantised_copy(TINY_MODEL, tmp_path / "int8", "int8_channel"))
    with pytest.raises(WeightsMismatch, match="lacks"):
        engine.load_folder(TINY_MODEL)

    assert engine.weights.checksums() == before


def test_an_engine_without_quantisation_takes_no_quantised_tensor(other: Path) -> None:
    engine = served(TINY_MODEL)

    with pytest.raises(WeightsMismatch, match=f"{WEIGHT} is torch.float8_e4m3fn, .* holds torch.float32"):
        engine.weights.load({WEIGHT: tensors_of(other)[WEIGHT]})


def test_only_at_its_start_an_engine_converts(tmp_path: Path) -> None:
    half = altered_copy(TINY_MODEL, tmp_path / "half", lambda name, t: t.bfloat16())
    engine = served(half)

    assert engine.weights.checksums() == hashes({name: t.float() for name, t in tensors_of(half).items()})
    with pytest.raises(WeightsMismatch, match=r"is torch.bfloat16, the served model holds torch.float32"):
        engine.load_folder(half)
