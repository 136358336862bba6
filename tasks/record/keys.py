"""The keys of what a run stores: built here, and read here."""

from collections.abc import Iterable
from typing import Literal

Numbered = Literal["checkpoints", "deltas", "evaluations", "heirs", "steps", "versions", "weights"]
"""Folders of a run in which each entry's name begins with the number of a step or a version."""


def run_key(run_id: str, name: str) -> str:
    """Key of a record of the whole run, such as `run.json`, or of one of its folders."""
    return f"{run_id}/{name}"


def numbered_key(run_id: str, folder: Numbered, number: int, name: str = "") -> str:
    """Key of a step's or version's folder, or of a file in it."""
    return f"{run_id}/{folder}/{number:06d}{name and '/'}{name}"


def numbers_in(keys: Iterable[str]) -> list[int]:
    """The numbers that keys of such a folder begin with, ascending, each once; other keys are passed over."""
    starts = (key.split("/")[2][:6] for key in keys)
    return sorted({int(start) for start in starts if start.isdigit()})
