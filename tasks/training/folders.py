"""Folders that appear whole or not at all."""

import os
import shutil
from pathlib import Path


def fresh_partial(folder: Path) -> Path:
    """An empty sibling to fill before `finish_partial` gives it the folder's name."""
    partial = _beside(folder, "partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def partial_of(folder: Path) -> Path:
    """The sibling that another rank's fresh_partial made."""
    return _beside(folder, "partial")


def finish_partial(folder: Path) -> None:
    """Make the partial's files durable and rename it to the folder, in place of an earlier one."""
    partial, old = partial_of(folder), _beside(folder, "old")
    for path in (*partial.iterdir(), partial):
        _sync(path)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f".{folder.name}.{suffix}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
