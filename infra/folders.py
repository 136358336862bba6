"""Folders that appear whole or not at all."""

import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_UNFINISHED = ".unfinished"
_LEFTOVER_AGE_S = 86400


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
    partial = partial_of(folder)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def partial_of(folder: Path) -> Path:
    """The sibling that is filled before `finish_partial`, by several processes maybe."""
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


def scratch(root: Path) -> Path:
    """A path below a root for what is not finished, that nobody else has and nothing lies at.

    It is in the root's file system, and no name of it is among `files_below`.
    """
    return root / _UNFINISHED / uuid.uuid4().hex


def clear_scratch(root: Path) -> None:
    """Remove what killed processes left unfinished over a day ago."""
    with suppress(FileNotFoundError):
        for leftover in (root / _UNFINISHED).iterdir():
            if leftover.stat().st_mtime < time.time() - _LEFTOVER_AGE_S:
                delete(leftover)


def apply_umask(file: Path) -> None:
    """Give a file the mode of a new one; safetensors, as tempfile, makes what its owner alone may read."""
    new = file.with_name(f".{file.name}.mode")
    new.touch()
    file.chmod(stat.S_IMODE(new.stat().st_mode))
    new.unlink()


def delete(path: Path) -> None:
    """Delete a file or a folder; fine when absent."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f".{folder.name}.{suffix}")


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
