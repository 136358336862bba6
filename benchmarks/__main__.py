"""`make bench`: what the parts of a step cost on this machine. Compare ratios of one run, not runs."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from configs.loading import load_config
from configs.run import RunConfig
from infra.engines.client import EngineClient
from infra.engines.launch import launch
from infra.home import Home
from infra.process import free_port, spawn, stop_tree, wait_until
from tasks.models import prepare_model, prepared_tokenizer
from tasks.problems import build_source
from tasks.reward.grade import grade_batch
from tasks.rollout.generate import generate_batch
from tasks.samples import RolloutBatch

PRESET = Path(__file__).parents[1] / "configs" / "tiny-cpu.yaml"
REPEATS = 5
T = TypeVar("T")


@dataclass(frozen=True)
class Figure:
    """One measured part: median seconds and what it did in them."""

    part: str
    seconds: float
    amount: str


def main() -> None:
    """Measure generation, grading, a training step, export and a disk update, and print a table."""
    config = load_config(PRESET)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(config, Path(folder))
    table = Table("part", "median s", "what")
    for figure in figures:
        table.add_row(figure.part, f"{figure.seconds:.3f}", figure.amount)
    Console().print(table)


def measure(config: RunConfig, folder: Path) -> list[Figure]:
    """The figures of a configuration; one engine and one trainer rank in this process."""
    home = Home(folder)
    tokenizer = prepared_tokenizer(config.model, home)
    problems = build_source(config.problems).training(config.seed, 0, config.rollout.prompts_per_step)
    port, model_path = free_port(), prepare_model(config.model, home)
    engine = spawn(launch(config.engine, model_path, port).command, folder / "engine.log")
    client = EngineClient(f"http://127.0.0.1:{port}")
    try:
        wait_until(client.healthy, config.engine.start_timeout_s, "the engine")
        client.stamp(0)
        generate, batch = timed(lambda: generate_batch([client], problems, tokenizer, config, 1))
        grade, graded = timed(lambda: grade_batch(batch, tokenizer))
        tokens = sum(len(sample.response_tokens) for sample in batch.samples())
        samples = sum(1 for _ in batch.samples())
        return [
            Figure("generate", generate, f"{samples} samples, {tokens / generate:,.0f} tokens/s"),
            Figure("grade", grade, f"{samples} samples"),
            *measure_trainer(config, model_path, graded, folder),
            Figure("update from disk", timed(lambda: client.update_from_disk(model_path))[0], "one engine"),
        ]
    finally:
        stop_tree(engine.pid)


def measure_trainer(config: RunConfig, model_path: Path, graded: RolloutBatch, folder: Path) -> list[Figure]:
    """A training step, a checkpoint and an export."""
    from tasks.training.rank import TrainerRank

    trainer = TrainerRank(config, 0, "127.0.0.1", free_port())
    trainer.load(model_path)
    step = iter(range(1, REPEATS + 2))

    def train() -> None:
        number = next(step)
        trainer.train(number, RolloutBatch(number, graded.groups), version=number)

    try:
        return [
            Figure("train", timed(train)[0], "one optimizer step"),
            Figure("checkpoint", timed(lambda: trainer.save(folder / "checkpoint"))[0], "weights and Adam"),
            Figure("export", timed(lambda: trainer.export(folder / "export", model_path))[0], "with hashes"),
        ]
    finally:
        trainer.close()


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Median seconds of REPEATS calls after one to warm up, and the last result."""
    result = action()
    seconds = []
    for _ in range(REPEATS):
        started = time.monotonic()
        result = action()
        seconds.append(time.monotonic() - started)
    return median(seconds), result


if __name__ == "__main__":
    main()
