"""Tensor-, data- and expert-parallel trainers against one process: same scores, gradients and weights."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from infra.process import free_port, log_tail, spawn, stop_tree
from tests.support.models import MODELS as TINY_MODELS
from tests.support.models import save_model
from tests.support.trainer_process import Layout, train_all
from tests.support.training import trainer_config

ROOT = Path(__file__).parents[4]
GROUPED = ["llama-tied", "llama-untied", "qwen2", "qwen3"]
EXPERTS = ["qwen3-moe", "mixtral", "deepseek-v2-groups", "deepseek-v3"]
MODELS = {
    "one": [*GROUPED, *EXPERTS],
    "tp2": [*GROUPED, "deepseek-v3"],
    "dp2": ["llama-tied", "qwen3", "deepseek-v3"],
    "tp2-ep2": EXPERTS,
    "dp2-ep2": EXPERTS,
}
"""By layout."""
SIZES = {
    "one": {},
    "tp2": {"tensor_parallel": 2},
    "dp2": {"data_parallel": 2},
    "tp2-ep2": {"tensor_parallel": 2, "expert_parallel": 2},
    "dp2-ep2": {"data_parallel": 2, "expert_parallel": 2},
}
SPLIT = [layout for layout in MODELS if layout != "one"]
SPLIT_CASES = [(layout, model) for layout in SPLIT for model in MODELS[layout]]
CASES = [("one", model) for model in MODELS["one"]] + SPLIT_CASES
FROZEN = "e_score_correction_bias"

pytestmark = pytest.mark.slow


def prepare(layout: str, folder: Path) -> Layout:
    """Make the folders for a layout's results."""
    for model in MODELS[layout]:
        (folder / layout / model).mkdir(parents=True)
    config = trainer_config(folder / "models", trainer={**SIZES[layout], "microbatch_tokens": 64})
    return Layout(config.model_dump_json(), free_port(), str(folder / layout))


def run_two_ranks(layouts: list[Layout], folder: Path) -> None:
    """Run two processes through the layouts, one layout after the other, to their end."""
    plan = folder / "plan.json"
    plan.write_text(json.dumps([asdict(layout) for layout in layouts]))
    env = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    script = [sys.executable, "-m", "tests.support.trainer_process"]
    ranks = [
        spawn([*script, str(rank), str(plan)], folder / f"rank-{rank}.log", env=env) for rank in range(2)
    ]
    try:
        for rank, process in enumerate(ranks):
            assert process.wait(timeout=240) == 0, log_tail(folder / f"rank-{rank}.log", lines=30)
    finally:
        for process in ranks:
            stop_tree(process.pid)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `models`, and the results of each layout under its name."""
    folder = tmp_path_factory.mktemp("layouts")
    for name in MODELS["one"]:
        save_model(TINY_MODELS[name], folder / "models" / name)
    train_all(prepare("one", folder), rank=0)
    run_two_ranks([prepare(layout, folder) for layout in SPLIT], folder)
    return folder


@pytest.mark.parametrize(("layout", "model"), CASES)
def test_an_untouched_export_is_bit_equal_to_its_source_and_buckets_know_its_shapes(results, layout, model):
    source = load_file(results / "models" / model / "model.safetensors")
    exported = load_file(results / layout / model / "untouched" / "model.safetensors")
    assert exported.keys() == source.keys()
    assert all(torch.equal(exported[name], source[name]) for name in source)
    shapes = torch.load(results / layout / model / "results.pt")["shapes"]
    assert shapes == {name: tuple(tensor.shape) for name, tensor in source.items()}


@pytest.mark.parametrize(("layout", "model"), SPLIT_CASES)
def test_scores_and_metrics_are_those_of_one_process(results, layout, model):
    one, other = (torch.load(results / name / model / "results.pt") for name in ("one", layout))
    for expected, found in zip(one["scores"], other["scores"], strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    for expected, found in zip(one["metrics"], other["metrics"], strict=True):
        assert found == pytest.approx(expected, abs=1e-5, rel=1e-4)


@pytest.mark.parametrize(("layout", "model"), SPLIT_CASES)
def test_hidden_states_are_those_of_one_process(results, layout, model):
    one, other = (torch.load(results / name / model / "results.pt")["hidden"] for name in ("one", layout))
    assert list(other) == list(one)
    for name, expected in one.items():
        assert torch.allclose(other[name], expected, atol=5e-5, rtol=1e-5), name


@pytest.mark.parametrize(("layout", "model"), SPLIT_CASES)
def test_gradients_are_those_of_one_process(results, layout, model):
    one, other = (load_file(results / name / model / "gradients.safetensors") for name in ("one", layout))
    for name, expected in one.items():
        assert expected.abs().max() > 1e-6, name
        assert (other[name] - expected).abs().max() <= 1e-5 * max(1.0, expected.abs().max().item()), name


@pytest.mark.parametrize(("layout", "model"), SPLIT_CASES)
def test_trained_weights_are_those_of_one_process(results, layout, model):
    one, other = (
        load_file(results / name / model / "trained" / "model.safetensors") for name in ("one", layout)
    )
    source = load_file(results / "models" / model / "model.safetensors")
    for name, expected in one.items():
        assert (other[name] - expected).abs().max() <= 1e-5, name
        assert torch.equal(expected, source[name]) == (FROZEN in name), name


@pytest.mark.parametrize(("layout", "model"), CASES)
def test_a_restored_trainer_goes_on_bit_equal(results, layout, model):
    trained, resumed = (
        load_file(results / layout / model / name / "model.safetensors") for name in ("trained", "resumed")
    )
    assert all(torch.equal(trained[name], resumed[name]) for name in trained)
