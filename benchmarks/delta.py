"""What a delta publish moves after one RL step: a model of SmolLM2-135M's shapes, in three number formats."""

import random
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.smollm2 import LoneTrainer, benchmark_config, save_random_model
from configs.run import RunConfig
from infra.home import Home
from infra.weights_folder import WeightsFolder
from tasks.model.bridge.writer import write_weights
from tasks.model.recipe import publish_recipe
from tasks.publishing.transports.delta_files import write_delta
from tasks.publishing.transports.mirror import mirror
from tasks.record.run import Run
from tasks.record.samples import Group, Problem, RolloutBatch, Sample, VersionSpan
from tasks.record.versions import read_version, stage_version

LEARNING_RATE = 1e-6
"""A usual one for RL of language models; bytes grow with it."""
FORMATS: dict[str, dict[str, dict[str, str]]] = {
    "float32": {},
    "bfloat16": {"engine": {"dtype": "bfloat16"}},
    "fp8_block, bfloat16": {"engine": {"dtype": "bfloat16"}, "publish": {"format": "fp8_block"}},
}
_LOOSE = {"transport": "delta", "probe_tolerance": 10.0, "prefix_tolerance": 10.0}
GROUPS, SAMPLES, TOKENS = 4, 4, 16


def measure_delta(folder: Path) -> Table:
    """Bytes and seconds of a delta from the exported weights before a step to those after it."""
    model = save_random_model(folder)
    config = benchmark_config(folder, trainer={"learning_rate": LEARNING_RATE, "warmup_steps": 0})
    trainer = LoneTrainer(config, model, folder)
    try:
        trainer.export_to(folder / "0")
        trainer.apply(1, _batch(trainer))
        trainer.export_to(folder / "1")
    finally:
        trainer.close()
    table = Table("delta publish", "weights, MB", "sent, MB", "of full", "making it, s", "applying it, s")
    for name, sections in FORMATS.items():
        publish: dict[str, Any] = {**_LOOSE, **sections.get("publish", {})}
        formatted = benchmark_config(folder, **{**sections, "publish": publish})
        table.add_row(name, *_row(formatted, folder))
    return table


def _row(config: RunConfig, folder: Path) -> list[str]:
    run = Run(id=config.number_format.replace("_", "-"), config=config, home=Home(folder / "home"))
    for version in (0, 1):
        _stage(run, folder / str(version), version)
    mirror(run, 0, run.home.mirror)
    weights = read_version(run, 1)
    started = time.monotonic()
    write_delta(run, weights)
    made = time.monotonic()
    sent = mirror(run, 1, run.home.mirror).sent_bytes
    applied = time.monotonic()
    full = weights.bytes
    return [
        f"{full / 1e6:.0f}",
        f"{sent / 1e6:.1f}",
        f"{sent / full:.1%}",
        f"{made - started:.2f}",
        f"{applied - made:.2f}",
    ]


def _stage(run: Run, exported: Path, version: int) -> None:
    """Stage fp32 weights in the format of the run."""
    folder = run.store.scratch()
    with WeightsFolder(exported) as weights:
        whole = ((name, weights.whole(name)) for name in sorted(weights.names))
        manifest = write_weights(folder, publish_recipe(run.config).apply(whole))
    stage_version(run, manifest, version - 1 if version else None, version)
    run.store.upload(run.weights_key(version), folder)


def _batch(trainer: LoneTrainer) -> RolloutBatch:
    """Groups of random tokens with the trainer's own log-probabilities, half of each rewarded."""
    rng = random.Random(0)
    groups = []
    for number in range(GROUPS):
        rows = [[rng.randrange(49152) for _ in range(2 * TOKENS)] for _ in range(SAMPLES)]
        samples = tuple(
            Sample(
                tuple(row[:TOKENS]),
                tuple(row[TOKENS:]),
                tuple(logprobs[TOKENS - 1 :]),
                (VersionSpan(0, 0, TOKENS),),
                "stop",
                float(place % 2),
            )
            for place, (row, logprobs) in enumerate(zip(rows, trainer.score(rows), strict=True))
        )
        groups.append(Group(Problem(f"p{number}", "prompt", "1"), samples))
    return RolloutBatch(1, tuple(groups))
