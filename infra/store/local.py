"""A store in a local folder (or one that all nodes mount)."""

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

from infra import folders
from infra.store.base import KeyExistsError, KeyMissingError, StoreError, key_parts


class LocalStore:
    """Keys are files below `root`; a key appears whole or not at all, also when the writer is killed.

    Files are written and synced under `.unfinished` and then linked (create) or moved (replace) into place,
    so what a killed writer leaves behind never looks like a key.
    """

    shared = True

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def check_writable(self) -> None:
        """Create and remove a key, and clear away what killed writers left over a day ago."""
        probe = f"writable-{uuid.uuid4().hex}"
        self.create(probe, b"")
        self.remove(probe)
        with self._explained():
            folders.clear_scratch(self._root)

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
            folders.delete(folders.partial_of(path))
            try:
                path.rename(gone)  # a folder is never half there
            except (FileNotFoundError, NotADirectoryError):
                return

    def folder(self, key: str) -> Path:
        """Where the files of a folder lie."""
        return self._root if key == "." else self._path(key)

    def scratch(self) -> Path:
        """A new empty folder in the store's file system, which files leave by their names alone."""
        folder = folders.scratch(self._root)
        with self._explained():
            _make_folder(folder)
        return folder

    def upload(self, key: str, folder: Path) -> None:
        """Move a folder into the store, in place of an earlier one."""
        with self._explained():
            folders.delete(folders.partial_of(self._path(key)))  # parts that nobody published
        self.put(key, folder)
        self._finish(key)

    def put(self, key: str, folder: Path) -> None:
        """Move what lies in a folder to the parts of another."""
        partial = folders.partial_of(self._path(key))
        with self._explained():
            names = [path.relative_to(folder) for path in folders.files_below(folder)]
            if not names:
                raise KeyMissingError(f"{key}: nothing lies in {folder}")
            for name in names:
                _make_folder((partial / name).parent)
                shutil.move(folder / name, partial / name)
                folders.sync(partial / name)
            shutil.rmtree(folder)

    def publish(self, key: str, names: Collection[str]) -> None:
        """Rename the parts to the folder, in place of an earlier one."""
        partial = folders.partial_of(self._path(key))
        with self._explained():
            parts = {path.relative_to(partial).as_posix(): path for path in folders.files_below(partial)}
            if missing := sorted(set(names) - parts.keys()):
                raise KeyMissingError(f"{key}: {missing[0]} was not put into the store {self._root}")
            for name in parts.keys() - set(names):
                parts[name].unlink()
        self._finish(key)

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

    def _finish(self, key: str) -> None:
        with self._explained():
            folders.finish_partial(self._path(key))

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
        unfinished = folders.scratch(self._root)
        _make_folder(unfinished.parent)
        try:
            yield unfinished
        finally:
            folders.delete(unfinished)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"store.path {self._root} cannot be used ({error.strerror}: {error.filename}): "
                "free space or permit writing there, or set store.path to another folder"
            ) from error


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
