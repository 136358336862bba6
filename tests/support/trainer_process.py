"""One rank of trainers of several layouts: run as a script by tests that need several ranks.

Arguments: rank, and a file with a list of layouts as JSON. The model folder of a layout's config holds one
folder a model, and the layout's folder for results one for each of them that is to be trained.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from configs.run import RunConfig
from infra.home import Home
from tasks.model.architecture import Architecture
from tasks.model.bridge.transfer import export_weights, load_weights
from tasks.model.megatron.model import build_model
from tasks.model.megatron.passes import ModelPass, Objective
from tasks.model.stored import store_folder
from tasks.record.run import Run
from tasks.record.samples import RolloutBatch
from tasks.training.algorithms.base import Tokens
from tasks.training.token_batch import lay_out
from tests.support.training import VOCABULARY, LooseRank, graded_batch, lonely_batch

SEQUENCES = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1], [60, 0, 59, 30, 31]]


@dataclass(frozen=True)
class Layout:
    """How the ranks meet, and where rank 0 leaves results."""

    config: str
    """A run's config as JSON."""
    port: int
    folder: str


def train_all(layout: Layout, rank: int) -> None:
    """Train a layout's models and leave results in its folder, written by rank 0."""
    config, folder = RunConfig.model_validate_json(layout.config), Path(layout.folder)
    home = Home(folder.with_name(f"{folder.name}-home"))
    trainer = LooseRank(Run(id="unit", config=config, home=home), rank, "127.0.0.1", layout.port)
    for name in sorted(made.name for made in folder.iterdir() if made.is_dir()):
        model = config.model.path / name
        _give(trainer, Run(id=name, config=config, home=home), model, rank)
        results = _train(trainer, name, folder / name)
        gradients = _gradients(config, model, graded_batch(1))
        if rank == 0:
            torch.save(results, folder / name / "results.pt")
            save_file(gradients, folder / name / "gradients.safetensors")
    trainer.close()


def _give(trainer: LooseRank, run: Run, model: Path, rank: int) -> None:
    """Another run, with a model of its own, for the same ranks."""
    if rank == 0:
        store_folder(run, model)
    dist.barrier()
    trainer._run = run


def _train(trainer: LooseRank, name: str, folder: Path) -> dict[str, Any]:
    trainer.load()
    trainer.export_to(folder / "untouched")
    scores = trainer.score(SEQUENCES)
    hidden = trainer.hidden_states(SEQUENCES[1])
    reports = [trainer.apply(step, graded_batch(step)) for step in (1, 2)]
    trainer.save(f"{name}/saved")
    reports.append(trainer.apply(3, lonely_batch(3)))
    trainer.export_to(folder / "trained")
    trainer.restore(f"{name}/saved")
    trainer.apply(3, lonely_batch(3))
    trainer.export_to(folder / "resumed")
    shapes = {name: shape for bucket in trainer.buckets() for name, _, shape in bucket}
    metrics = [report.metrics for report in reports]
    return {"scores": scores, "hidden": hidden, "metrics": metrics, "shapes": shapes}


def _gradients(config: RunConfig, folder: Path, batch: RolloutBatch) -> dict[str, torch.Tensor]:
    """Gradients of the loss under the weights' Hugging Face names."""
    device = torch.device("cpu")
    architecture = Architecture.read(folder)
    model = build_model(architecture, config.trainer, device)
    load_weights(model.module, architecture, folder)
    algorithm = config.algorithm.build()
    laid = lay_out(batch, algorithm.advantages(batch, values=None), device)
    [rows] = laid.minibatches(1)

    def of(microbatch, logprobs_N):
        places = microbatch.places_N
        old_N, rollout_N = logprobs_N.detach(), laid.rollout_logprobs_N[places]
        return algorithm.loss(Tokens(logprobs_N, old_N, rollout_N, laid.advantages_N[places]))

    objective = Objective(algorithm.columns, of)
    ModelPass(model, VOCABULARY, config.trainer, device).run(rows, laid.count, 1.0, objective)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.copy_(parameter.main_grad)
    return dict(export_weights(model.module, architecture))


if __name__ == "__main__":
    for fields in json.loads(Path(sys.argv[2]).read_text()):
        train_all(Layout(**fields), int(sys.argv[1]))
