"""Adding an algorithm: one file, tests/support/own_algorithm.py, and its path in a config."""

import math

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from configs.loading import ConfigError
from configs.run import RunConfig
from tests.support.own_algorithm import LeaveOneOut
from tests.support.training import graded_batch, trainer_config

OWN = {"kind": "tests.support.own_algorithm:LeaveOneOut", "scale": 3.0}
TEMPERATURE = 0.8


def reference(folder, batch):
    """Loss, surprise, gradient and its norm at the folder's weights, float64, by autograd of transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    losses, logprobs = [], []
    for group in batch.groups:
        graded = [sample for sample in group.samples if sample.reward is not None]
        for sample in graded:
            others = [other.reward for other in graded if other is not sample]
            advantage = 3.0 * (sample.reward - sum(others) / len(others))
            ids = torch.tensor([sample.prompt_tokens + sample.response_tokens])
            start = len(sample.prompt_tokens)
            chosen = (model(ids).logits[0, start - 1 : -1] / TEMPERATURE).log_softmax(-1)
            chosen = chosen.gather(1, ids[0, start:, None])[:, 0]
            drawn = torch.tensor(sample.rollout_logprobs, dtype=torch.float64)
            weights = (chosen.detach() - drawn).exp().clamp(max=2.0)
            losses.append(-weights * advantage * chosen)
            logprobs.append(chosen.detach())
    loss = torch.cat(losses).mean()
    loss.backward()
    gradient = {
        name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    norm = math.sqrt(sum(float(part.square().sum()) for part in gradient.values()))
    return loss.item(), -torch.cat(logprobs).mean().item(), gradient, norm


def test_a_step_with_it_is_that_of_the_reference(start_trainer, model, tmp_path):
    rate, eps = 0.5, 1.0
    optimizer = {"learning_rate": rate, "adam_eps": eps, "warmup_steps": 0, "grad_clip": 1e9}
    trainer = start_trainer(algorithm=OWN, trainer=optimizer)
    metrics = trainer.apply(1, graded_batch(1)).metrics
    trainer.export_to(tmp_path / "trained")

    loss, surprise, gradient, norm = reference(model, graded_batch(1))
    assert metrics["policy/loss"] == pytest.approx(loss, abs=1e-5)
    assert metrics["policy/surprise"] == pytest.approx(surprise, abs=1e-5)
    assert metrics["policy/grad_norm"] == pytest.approx(norm, rel=1e-5)
    assert "policy/clip_fraction" not in metrics
    before, after = load_file(model / "model.safetensors"), load_file(tmp_path / "trained/model.safetensors")
    for name, part in gradient.items():
        expected = before[name].double() - rate * part / (part.abs() + eps)  # Adam's first step
        assert (after[name] - expected).abs().max() <= 2e-6, name


def test_it_differs_from_the_default(start_trainer):
    """A group of equal rewards trains nothing, but its tokens count here and not in DAPO's mean."""
    hashes = set()
    for algorithm in ({}, OWN):
        trainer = start_trainer(algorithm=algorithm)
        trainer.apply(1, graded_batch(1))
        hashes.add(trainer.content_hash())
    assert len(hashes) == 2


def test_it_survives_the_record_of_a_run(tmp_path):
    config = trainer_config(tmp_path, algorithm={**OWN, "minibatches": 2, "tis_cap": None})
    again = RunConfig.model_validate_json(config.model_dump_json())
    assert again == config
    assert again.algorithm == LeaveOneOut(**OWN, minibatches=2, tis_cap=None)


def test_its_settings_are_checked(tmp_path):
    with pytest.raises(ConfigError, match=r"^config: algorithm\.scale: must be more than 0"):
        trainer_config(tmp_path, algorithm={**OWN, "scale": 0})


def test_columns_other_than_the_named_ones_are_told(start_trainer, monkeypatch):
    trainer = start_trainer(algorithm=OWN)
    monkeypatch.setattr("tests.support.own_algorithm.Rloo.columns", ("loss",))
    with pytest.raises(ValueError, match=r"loss gave \['loss', 'surprise'\] and its columns are \['loss'\]"):
        trainer.apply(1, graded_batch(1))
    monkeypatch.setattr("tests.support.own_algorithm.Rloo.columns", ("logprobs", "loss"))
    with pytest.raises(ValueError, match="and none of"):
        trainer.apply(1, graded_batch(1))
