"""Tensor- and data-parallel trainers against one process: same scores, gradients, weights and exports."""

import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from infra.process import free_port, log_tail, spawn, stop_tree
from tests.support.models import MODELS, save_model
from tests.support.training import trainer_config

ROOT = Path(__file__).parents[4]
LAYOUTS = {"one": (1, 1), "tp2": (2, 1), "dp2": (1, 2)}

pytestmark = pytest.mark.slow


def run_layout(models: Path, folder: Path, tensor_parallel: int, data_parallel: int) -> None:
    """Run the ranks of a layout to their end."""
    layout = {"tensor_parallel": tensor_parallel, "data_parallel": data_parallel, "microbatch_tokens": 128}
    config, port = trainer_config(models, trainer=layout).model_dump_json(), str(free_port())
    for name in MODELS:
        (folder / name).mkdir(parents=True)
    script = [sys.executable, "-m", "tests.support.trainer_process", config]
    env = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    ranks = [
        spawn([*script, str(rank), port, str(folder)], folder / f"rank-{rank}.log", env=env)
        for rank in range(tensor_parallel * data_parallel)
    ]
    try:
        for rank, process in enumerate(ranks):
            assert process.wait(timeout=120) == 0, log_tail(folder / f"rank-{rank}.log", lines=30)
    finally:
        for process in ranks:
            stop_tree(process.pid)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `models`, and the results of each layout under its name."""
    folder = tmp_path_factory.mktemp("layouts")
    for name, config in MODELS.items():
        save_model(config, folder / "models" / name)
    for layout, (tensor_parallel, data_parallel) in LAYOUTS.items():
        run_layout(folder / "models", folder / layout, tensor_parallel, data_parallel)
    return folder


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_untouched_export_is_bit_equal_to_its_source(results, layout, model):
    source = load_file(results / "models" / model / "model.safetensors")
    exported = load_file(results / layout / model / "untouched" / "model.safetensors")
    assert exported.keys() == source.keys()
    assert all(torch.equal(exported[name], source[name]) for name in source)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", ["tp2", "dp2"])
def test_scores_and_metrics_are_those_of_one_process(results, layout, model):
    one, other = (torch.load(results / name / model / "results.pt") for name in ("one", layout))
    for expected, found in zip(one["scores"], other["scores"], strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    for expected, found in zip(one["metrics"], other["metrics"], strict=True):
        assert found == pytest.approx(expected, abs=1e-5, rel=1e-4)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", ["tp2", "dp2"])
def test_gradients_are_those_of_one_process(results, layout, model):
    one, other = (load_file(results / name / model / "gradients.safetensors") for name in ("one", layout))
    for name, expected in one.items():
        assert expected.abs().max() > 1e-6, name
        assert (other[name] - expected).abs().max() <= 1e-5 * max(1.0, expected.abs().max().item()), name


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", ["tp2", "dp2"])
def test_trained_weights_are_those_of_one_process(results, layout, model):
    one, other = (
        load_file(results / name / model / "trained" / "model.safetensors") for name in ("one", layout)
    )
    source = load_file(results / "models" / model / "model.safetensors")
    for name, expected in one.items():
        assert (other[name] - expected).abs().max() <= 1e-5, name
        assert not torch.equal(expected, source[name]), name


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_restored_trainer_goes_on_bit_equal(results, layout, model):
    trained, resumed = (
        load_file(results / layout / model / name / "model.safetensors") for name in ("trained", "resumed")
    )
    assert all(torch.equal(trained[name], resumed[name]) for name in trained)
