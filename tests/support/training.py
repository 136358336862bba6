"""Graded batches of random tokens, and trainer configs and single-process trainers for them."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from configs.loading import parse_config
from configs.run import RunConfig
from infra.home import Home
from infra.process import free_port
from tasks.model.stored import store_folder
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.samples import BatchRef, Group, Problem, RolloutBatch, Sample, VersionSpan, batch_hash
from tasks.training.rank import TrainerRank
from tasks.training.report import TrainReport

VOCABULARY = 61  # odd, so that two tensor-parallel ranks have to pad it


def trainer_config(folder: Path, **sections: dict[str, Any]) -> RunConfig:
    """A run's config with a small batch; keyword arguments replace fields of its sections."""
    document: dict[str, Any] = {
        "name": "unit",
        "model": {"kind": "folder", "path": str(folder)},
        "problems": {"kind": "arithmetic"},
        "rollout": {"max_new_tokens": 12, "temperature": 0.8, "prompts_per_step": 6, "samples_per_prompt": 4},
        "trainer": {
            "learning_rate": 1e-3,
            "warmup_steps": 2,
            "adam_eps": 1e-5,  # with less, Adam makes large steps of the rounding of vanishing gradients
            "step_timeout_s": 60,
            "start_timeout_s": 120,
        },
    }
    for section, fields in sections.items():
        document[section] = {**document.get(section, {}), **fields}
    return parse_config(document, folder=folder)


class LooseRank(TrainerRank):
    """A rank that takes batches from memory, and whose exports go to any folder."""

    def apply(self, step: int, batch: RolloutBatch, version: int | None = None) -> TrainReport:
        """Train on a batch, which is stored first."""
        return self.train(step, stored(self._run, batch), version)

    def export_to(self, target: Path) -> Manifest:
        """Export by way of the store; the folder is written by rank 0."""
        manifest, key = self.export(), f"{self._run.id}/exported"
        self.keep(key)
        if self._rank == 0:
            self._run.store.fetch(key, target)
        return manifest


def stored(run: Run, batch: RolloutBatch) -> BatchRef:
    """Put a batch into the run's store."""
    data, key = batch.to_parquet(), run.step_key(batch.step, "graded.parquet")
    run.store.replace(key, data)
    return BatchRef(batch.step, key, batch_hash(data))


@contextmanager
def single_trainer(folder: Path, home: Path | None = None, **sections: dict[str, Any]) -> Iterator[LooseRank]:
    """A trainer of one process, this one, with the folder's model loaded; its state folder may be given."""
    with TemporaryDirectory() as passing:
        run = Run(id="unit", config=trainer_config(folder, **sections), home=Home(home or Path(passing)))
        store_folder(run, folder)
        trainer = LooseRank(run, 0, "127.0.0.1", free_port())
        try:
            trainer.load()
            yield trainer
        finally:
            trainer.close()


def graded_batch(step: int, vocabulary: int = VOCABULARY, groups: int = 6) -> RolloutBatch:
    """Random samples of random rewards; group 1 has no spread, group 2 an ungraded and an empty sample."""
    rng = random.Random(step)
    made = []
    for number in range(groups):
        prompt = tuple(rng.randrange(vocabulary) for _ in range(rng.randrange(3, 8)))
        samples = []
        for place in range(4):
            length = 0 if (number, place) == (2, 1) else rng.randrange(2, 13)
            reward = (
                None if (number, place) == (2, 0) else float(number != 1 and place < 1 + rng.randrange(3))
            )
            samples.append(
                Sample(
                    prompt,
                    tuple(rng.randrange(vocabulary) for _ in range(length)),
                    tuple(rng.gauss(-4, 0.5) for _ in range(length)),
                    (VersionSpan(step - 1, 0, length),),
                    "stop",
                    reward,
                )
            )
        made.append(Group(Problem(f"p{number}", "prompt", "1"), tuple(samples)))
    return RolloutBatch(step, tuple(made))


def lonely_batch(step: int) -> RolloutBatch:
    """A batch with one usable row: the other graded sample of its group has no response token."""
    problem = Problem("p", "prompt", "1")
    span = (VersionSpan(step - 1, 0, 3),)
    long = Sample((5, 6, 7), (8, 9, 10), (-4.0, -4.1, -4.2), span, "stop", 1.0)
    empty = Sample((5, 6, 7), (), (), (), "stop", 0.0)
    return RolloutBatch(step, (Group(problem, (long, empty)),))
