"""Models with experts train through the same rank as dense ones."""

import math

import pytest
import torch
from safetensors.torch import load_file

from tests.support.models import MODELS, save_model
from tests.support.training import graded_batch, single_trainer


@pytest.mark.parametrize("name", ["qwen3-moe", "deepseek-v3"])
def test_the_same_step_gives_the_same_bits_and_moves_every_expert_but_no_bias(name, tmp_path):
    folder = save_model(MODELS[name], tmp_path / "model")
    source, hashes = load_file(folder / "model.safetensors"), set()
    for attempt in ("one", "two"):
        with single_trainer(folder) as trainer:
            report = trainer.apply(1, graded_batch(1))
            trainer.export_to(tmp_path / attempt)
            hashes.add(trainer.content_hash())
    assert report.optimizer_steps == 1
    assert math.isfinite(report.metrics["policy/grad_norm"])
    assert len(hashes) == 1
    trained = load_file(tmp_path / "one" / "model.safetensors")
    unmoved = {tensor for tensor in source if torch.equal(source[tensor], trained[tensor])}
    assert unmoved == {tensor for tensor in source if tensor.endswith("e_score_correction_bias")}
