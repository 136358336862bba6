"""One rank of a trainer as a process: run as a script by tests that need several ranks.

Arguments: config as JSON, rank, port, folder for results. The config's model folder holds one folder a model.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from configs.run import RunConfig
from configs.training import AlgorithmConfig
from tasks.samples import RolloutBatch
from tasks.training.architecture import Architecture
from tasks.training.flat import flatten
from tasks.training.losses.dapo import dapo_loss
from tasks.training.megatron.model import build_model
from tasks.training.megatron.passes import ModelPass
from tasks.training.rank import TrainerRank
from tasks.weights.bridge.transfer import export_weights, load_weights
from tests.support.training import VOCABULARY, graded_batch, lonely_batch

SEQUENCES = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1], [60, 0, 59, 30, 31]]


def main(config_json: str, rank: int, port: int, folder: Path) -> None:
    """Train every model of the config's folder and leave results in `folder`, written by rank 0."""
    config = RunConfig.model_validate_json(config_json)
    trainer = TrainerRank(config, rank, "127.0.0.1", port)
    for model in sorted(config.model.path.iterdir()):  # type: ignore[union-attr]
        results = _train(trainer, model, folder / model.name)
        gradients = _gradients(config, model, graded_batch(1))
        if rank == 0:
            torch.save(results, folder / model.name / "results.pt")
            save_file(gradients, folder / model.name / "gradients.safetensors")
    trainer.close()


def _train(trainer: TrainerRank, model: Path, folder: Path) -> dict[str, Any]:
    trainer.load(model)
    trainer.export(folder / "untouched", model)
    scores = trainer.score(SEQUENCES)
    reports = [trainer.train(step, graded_batch(step)) for step in (1, 2)]
    trainer.save(folder / "saved")
    reports.append(trainer.train(3, lonely_batch(3)))
    trainer.export(folder / "trained", model)
    trainer.restore(folder / "saved")
    trainer.train(3, lonely_batch(3))
    trainer.export(folder / "resumed", model)
    return {"scores": scores, "metrics": [report.metrics for report in reports]}


def _gradients(config: RunConfig, folder: Path, batch: RolloutBatch) -> dict[str, torch.Tensor]:
    """Gradients of the loss under the weights' Hugging Face names."""
    device = torch.device("cpu")
    architecture = Architecture.read(folder)
    model = build_model(architecture, config.trainer, device)
    load_weights(model.module, architecture, folder)
    flat = flatten(batch, 0, device)
    rows = [row for group in flat.usable for row in group]

    def loss_of(microbatch, logprobs_N):
        places = microbatch.places_N
        old_N, rollout_N = logprobs_N.detach(), flat.rollout_logprobs_N[places]
        return dapo_loss(logprobs_N, old_N, rollout_N, flat.advantages_N[places], AlgorithmConfig())

    ModelPass(model, VOCABULARY, config.trainer.microbatch_tokens, device).run(
        rows, flat.tokens, 1.0, loss_of
    )
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.copy_(parameter.main_grad)
    return dict(export_weights(model.module, architecture, torch.float32))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
