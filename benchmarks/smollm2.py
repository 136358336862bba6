"""A model of SmolLM2-135M's shapes with random weights, and a trainer of one rank in this process."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from configs.loading import parse_config
from configs.run import RunConfig
from infra.home import Home
from infra.process import free_port
from tasks.model.stored import store_folder
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.samples import BatchRef, RolloutBatch, batch_hash
from tasks.training.rank import TrainerRank

SMOLLM2 = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
    rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    tie_word_embeddings=True,
)


class LoneTrainer(TrainerRank):
    """A trainer of one rank in this process, with the model of its run loaded."""

    def __init__(self, config: RunConfig, model: Path, folder: Path) -> None:
        """What it stores goes below the folder."""
        run = Run(id="lone", config=config, home=Home(folder / "lone"))
        store_folder(run, model)
        super().__init__(run, 0, "127.0.0.1", free_port())
        self.load()

    def apply(self, step: int, batch: RolloutBatch, version: int | None = None) -> None:
        """Train on a batch, which is stored first."""
        data, key = batch.to_parquet(), self._run.step_key(batch.step, "graded.parquet")
        self._run.store.replace(key, data)
        self.train(step, BatchRef(batch.step, key, batch_hash(data)), version)

    def export_to(self, target: Path) -> Manifest:
        """Export by way of the store."""
        manifest = self.export()
        self.keep("lone/exported")
        self._run.store.fetch("lone/exported", target)
        return manifest


def save_random_model(folder: Path) -> Path:
    """The model's folder."""
    torch.manual_seed(0)
    LlamaForCausalLM(SMOLLM2).save_pretrained(folder / "model")
    return folder / "model"


def benchmark_config(folder: Path, **sections: dict[str, Any]) -> RunConfig:
    """A run of the model in `folder`."""
    document = {
        "name": "benchmark",
        "model": {"kind": "folder", "path": "model"},
        "problems": {"kind": "arithmetic"},
        **sections,
    }
    return parse_config(document, folder=folder)
