"""Folders that appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(folder: Path) -> Iterator[Path]:
    """An empty sibling to fill: it becomes the folder at the end of the block, or is gone when that fails."""
    partial = fresh_partial(folder)
    try:
        yield partial
        finish_partial(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def fresh_partial(folder: Path) -> Path:
    """An empty sibling to fill before `finish_partial` gives it the folder's name."""
    partial = _beside(folder, "partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def partial_of(folder: Path) -> Path:
    """The sibling that another process's fresh_partial made."""
    return _beside(folder, "partial")


def finish_partial(folder: Path) -> None:
    """Make the partial's files durable and rename it to the folder, in place of an earlier one."""
    partial, old = partial_of(folder), _beside(folder, "old")
    for path in (*partial.rglob("*"), partial):
        sync(path)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def files_below(folder: Path) -> Iterator[Path]:
    """Every file below a folder, but for what begins with a dot; none when there is no folder."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from files_below(Path(entry.path))
        else:
            yield Path(entry.path)


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f".{folder.name}.{suffix}")


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
