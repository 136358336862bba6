"""What somebody asks to have evaluated, checked before anything starts."""

from pathlib import Path

from configs.errors import UserError
from tasks.problems.jsonl import prompt_template, read_problems
from tasks.record.run import Run
from tasks.record.runs import newest_version
from tasks.record.versions import exported_versions


def check_request(run: Run, version: int | None, dataset: Path | None) -> int:
    """The version to evaluate, a run's newest when None; UserError when it or the data set cannot be had."""
    version = newest_version(run) if version is None else version
    if version not in exported_versions(run):
        kept = ", ".join(map(str, exported_versions(run)))
        raise UserError(f"run {run.id} has no weights of version {version}: it has those of {kept}")
    if dataset is not None:
        read_problems(dataset, prompt_template(run.config.problems), run.config.reward.build())
    return version
