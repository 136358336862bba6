"""The probe: fixed token sequences that trainer and engines score, so that they can be compared."""

import contextlib

from infra.store.base import KeyExistsError
from tasks.model.source import prepared_tokenizer
from tasks.problems import build_source
from tasks.record.run import Run
from tasks.record.stored import Record, create_record, read_record


class Probe(Record):
    """Fixed token sequences and the trainer's log-probabilities of their tokens[1:] at temperature 1."""

    sequences: list[list[int]]
    logprobs: list[list[float]]


def probe_sequences(run: Run) -> list[list[int]]:
    """The run's fixed probe: token sequences of its first training prompts."""
    count = run.config.publish.probe_sequences
    problems = build_source(run.config).training(run.config.seed, 0, count)
    tokenizer = prepared_tokenizer(run.config.model, run.home)
    return [tokenizer(problem.prompt).input_ids for problem in problems]


def save_probe(run: Run, version: int, probe: Probe) -> None:
    """Keep what the trainer gave with a version; what an earlier try kept stays."""
    with contextlib.suppress(KeyExistsError):
        create_record(run.store, _key(run, version), probe)


def read_probe(run: Run, version: int) -> Probe:
    """What the trainer gave with a version; KeyMissingError when the version was not staged."""
    return read_record(run.store, _key(run, version), Probe)


def _key(run: Run, version: int) -> str:
    return run.version_key(version, "probe.json")
