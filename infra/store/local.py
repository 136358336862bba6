"""A store in a local folder (or one that all nodes mount)."""

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from infra import folders
from infra.store.base import KeyExistsError, KeyMissingError, StoreError, key_parts

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
                    _delete(leftover)

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
            folders.sync(path.parent)

    def replace(self, key: str, data: bytes) -> None:
        """Write a key atomically and durably, whether or not it exists."""
        path = self._path(key)
        with self._explained(), self._written(data) as unfinished:
            _make_folder(path.parent)
            unfinished.replace(path)
            folders.sync(path.parent)

    def exists(self, key: str) -> bool:
        """Whether the key is there (a folder is not a key)."""
        with self._explained():
            return self._path(key).is_file()

    def list_folders(self, prefix: str) -> list[str]:
        """Keys of the folders right below a prefix, sorted; empty when there are none."""
        with self._explained():
            try:
                paths = list(self.folder(prefix).iterdir())
            except (FileNotFoundError, NotADirectoryError):
                return []
            whole = (path for path in paths if path.is_dir() and not path.name.startswith("."))
            return sorted(path.relative_to(self._root).as_posix() for path in whole)

    def list(self, prefix: str) -> list[str]:
        """All keys below a folder prefix, sorted; empty when there are none."""
        with self._explained():
            paths = folders.files_below(self.folder(prefix))
            return sorted(path.relative_to(self._root).as_posix() for path in paths)

    def remove(self, prefix: str) -> None:
        """Remove a key or a whole folder; fine when absent."""
        path = self._path(prefix)
        with self._explained(), self._unfinished() as gone:
            try:
                path.rename(gone)  # a folder is never half there
            except (FileNotFoundError, NotADirectoryError):
                return

    def folder(self, key: str) -> Path:
        """Where the files of a folder lie, or are to be put; it is not created."""
        return self._root if key == "." else self._path(key)

    def upload(self, key: str) -> None:
        """Nothing to do but to see that the files are there: they lie in the store already."""
        self.local(key)

    def local(self, key: str) -> Path:
        """`folder(key)`; KeyMissingError when it is not there."""
        folder = self.folder(key)
        with self._explained():
            if not folder.is_dir():
                raise KeyMissingError(f"{key}: no such folder in the store {self._root}")
        return folder

    def fetch(self, key: str, target: Path) -> int:
        """Copy a folder to `target`, which appears whole or not at all; the bytes copied."""
        source, copied = self.local(key), 0
        with folders.atomic(target) as partial:
            for path in folders.files_below(source):
                copy = partial / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                copied += copy.stat().st_size
        return copied

    def uri(self, key: str) -> str:
        """The file:// address of a key or folder."""
        return self.folder(key).as_uri()

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*key_parts(key))

    @contextlib.contextmanager
    def _written(self, data: bytes) -> Iterator[Path]:
        """A synced file holding `data`, outside the keys; gone afterwards unless it was moved."""
        with self._unfinished() as unfinished:
            with unfinished.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield unfinished

    @contextlib.contextmanager
    def _unfinished(self) -> Iterator[Path]:
        """A path outside the keys; what is there in the end is deleted."""
        folder = self._root / _UNFINISHED
        _make_folder(folder)
        unfinished = folder / uuid.uuid4().hex
        try:
            yield unfinished
        finally:
            _delete(unfinished)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"store.path {self._root} cannot be used ({error.strerror}: {error.filename}): "
                "free space or permit writing there, or set store.path to another folder"
            ) from error


def _delete(path: Path) -> None:
    """Delete a file or a folder; fine when absent."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, each entry synced to disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    folders.sync(folder.parent)
