"""Which experts tokens went to, as routing replay in a trainer needs it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from infra.engines.client import EngineError, SamplingParams
from tests.support.engines import ServedFolder

PROMPTS = [[7], [9, 8, 7, 6, 5, 4], [11, 12, 13], [9, 8, 7, 6, 5, 4]]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("family", ["mixture"], indirect=True)
def test_routed_experts_are_those_of_transformers(engine: ServedFolder) -> None:
    params = [
        SamplingParams(max_new_tokens=length, ignore_eos=True, sampling_seed=length)
        for length in (20, 30, 1, 12)
    ]
    outputs = engine.client.generate(PROMPTS, params, routed_experts=True)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert output.routed_experts is not None
        assert output.routed_experts.dtype == np.int32
        np.testing.assert_array_equal(
            output.routed_experts, _reference_experts(engine.folder, [*prompt, *output.tokens])
        )


@pytest.mark.parametrize("family", ["mixture"], indirect=True)
def test_routed_experts_follow_new_weights(engine: ServedFolder, changed: Path) -> None:
    params = [SamplingParams(max_new_tokens=30, ignore_eos=True, sampling_seed=1)]
    engine.client.update_from_disk(changed)
    (output,) = engine.client.generate([PROMPTS[1]], params, routed_experts=True)
    tokens = [*PROMPTS[1], *output.tokens]
    np.testing.assert_array_equal(output.routed_experts, _reference_experts(changed, tokens))
    assert (output.routed_experts != _reference_experts(engine.folder, tokens)).any()


@pytest.mark.parametrize("family", ["mixture"], indirect=True)
def test_routed_experts_are_told_when_asked_for(engine: ServedFolder) -> None:
    (output,) = engine.client.generate([[7]], [SamplingParams(max_new_tokens=2)])
    assert output.routed_experts is None


@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_a_model_without_experts_has_none_to_tell(engine: ServedFolder) -> None:
    with pytest.raises(EngineError, match="experts"):
        engine.client.generate([[7]], [SamplingParams(max_new_tokens=2)], routed_experts=True)


@torch.no_grad()
def _reference_experts(folder: Path, tokens: list[int]) -> np.ndarray:
    """[tokens - 1, layers, topk]: the routers' choices in transformers, of every token but the last."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    choices = []
    for layer in model.model.layers:
        layer.mlp.gate.register_forward_hook(lambda router, inputs, outputs: choices.append(outputs[2]))
    model(torch.tensor([tokens[:-1]]))
    return torch.stack(choices, dim=1).numpy()
