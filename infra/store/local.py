"""A store in a local folder (or one that all nodes mount)."""

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from infra.store.base import KeyExistsError, KeyMissingError, StoreError

_UNFINISHED = ".unfinished"
_LEFTOVER_AGE_S = 86400


class LocalStore:
    """Keys are files below `root`; a key appears whole or not at all, also when the writer is killed.

    Files are written and synced under `.unfinished` and then linked (create) or moved (replace) into place,
    so what a killed writer leaves behind never looks like a key.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def check_writable(self) -> None:
        """Create and remove a key, and clear away what killed writers left over a day ago."""
        probe = f"writable-{uuid.uuid4().hex}"
        self.create(probe, b"")
        self.remove(probe)
        with self._explained():
            for leftover in (self._root / _UNFINISHED).iterdir():
                if leftover.stat().st_mtime < time.time() - _LEFTOVER_AGE_S:
                    leftover.unlink(missing_ok=True)

    def read(self, key: str) -> bytes:
        """The bytes of a key; KeyMissingError when absent."""
        path = self._path(key)
        with self._explained():
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise KeyMissingError(f"{key}: not in the store {self._root}") from None

    def create(self, key: str, data: bytes) -> None:
        """Write a key that must not exist yet, atomically and durably; KeyExistsError when it does."""
        path = self._path(key)
        with self._explained(), self._written(data) as unfinished:
            _make_folder(path.parent)
            try:
                os.link(unfinished, path)
            except FileExistsError:
                raise KeyExistsError(f"{key}: already in the store {self._root}") from None
            _sync_folder(path.parent)

    def replace(self, key: str, data: bytes) -> None:
        """Write a key atomically and durably, whether or not it exists."""
        path = self._path(key)
        with self._explained(), self._written(data) as unfinished:
            _make_folder(path.parent)
            unfinished.replace(path)
            _sync_folder(path.parent)

    def exists(self, key: str) -> bool:
        """Whether the key is there (a folder is not a key)."""
        with self._explained():
            return self._path(key).is_file()

    def list(self, prefix: str) -> list[str]:
        """All keys below a folder prefix, sorted; empty when there are none."""
        with self._explained():
            paths = _files_below(self.folder(prefix))
            return sorted(path.relative_to(self._root).as_posix() for path in paths)

    def remove(self, prefix: str) -> None:
        """Remove a key or a whole folder; fine when absent."""
        path = self._path(prefix)
        with self._explained():
            try:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return

    def folder(self, key: str) -> Path:
        """A local directory path for bulky files (weights, checkpoints); it is not created."""
        return self._root if key == "." else self._path(key)

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if any(not part or part.startswith(".") or "\0" in part or "\\" in part for part in parts):
            raise ValueError(
                f"not a store key: {key!r} (relative, slash-separated, no part that begins with a dot)"
            )
        return self._root.joinpath(*parts)

    @contextlib.contextmanager
    def _written(self, data: bytes) -> Iterator[Path]:
        """A synced file holding `data`, outside the keys; gone afterwards unless it was moved."""
        folder = self._root / _UNFINISHED
        _make_folder(folder)
        unfinished = folder / uuid.uuid4().hex
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield unfinished
        finally:
            unfinished.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (KeyExistsError, KeyMissingError):
            raise
        except OSError as error:
            raise StoreError(
                f"store.path {self._root} cannot be used ({error.strerror}: {error.filename}): "
                "free space or permit writing there, or set store.path to another folder"
            ) from error


def _files_below(folder: Path) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _files_below(Path(entry.path))
        else:
            yield Path(entry.path)


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, each entry synced to disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
