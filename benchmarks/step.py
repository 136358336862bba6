"""What the parts of a step cost: the tiny model, one engine, one trainer rank."""

from pathlib import Path

from benchmarks.figures import REPEATS, Figure, timed
from configs.run import RunConfig
from infra.engines.client import EngineClient
from infra.engines.launch import launch
from infra.home import Home
from infra.process import LOOPBACK, free_port, spawn, stop_tree, wait_until
from tasks.grading.grade import grade_batch
from tasks.model.source import prepare_model, prepared_tokenizer
from tasks.problems import build_source
from tasks.record.samples import RolloutBatch
from tasks.rollout.generate import generate_batch


def measure_step(config: RunConfig, folder: Path) -> list[Figure]:
    """The figures of a configuration; one engine and one trainer rank in this process."""
    home = Home(folder)
    tokenizer = prepared_tokenizer(config.model, home)
    problems = build_source(config).training(config.seed, 0, config.rollout.prompts_per_step)
    port, model_path = free_port(), prepare_model(config.model, home)
    server = launch(config.engine, model_path, LOOPBACK, port)
    engine = spawn(server.command, folder / "engine.log", server.env)
    client = EngineClient(f"http://127.0.0.1:{port}")
    try:
        wait_until(client.healthy, config.engine.start_timeout_s, "the engine")
        client.stamp(0)
        generate, batch = timed(lambda: generate_batch([client], problems, tokenizer, config, 1, 0))
        grade, graded = timed(lambda: grade_batch(batch, config.reward.build(), tokenizer))
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
    from benchmarks.smollm2 import LoneTrainer

    trainer = LoneTrainer(config, model_path, folder)
    step = iter(range(1, REPEATS + 2))

    def train() -> None:
        number = next(step)
        trainer.apply(number, RolloutBatch(number, graded.groups), version=number)

    def export() -> None:
        trainer.export()
        trainer.keep("lone/exported")

    try:
        return [
            Figure("train", timed(train)[0], "one optimizer step"),
            Figure("checkpoint", timed(lambda: trainer.save("lone/checkpoint"))[0], "weights and Adam"),
            Figure("export", timed(export)[0], "with hashes"),
        ]
    finally:
        trainer.close()
