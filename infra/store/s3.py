"""A store in an S3 bucket."""

import contextlib
import shutil
import uuid
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict

from configs.store import S3StoreConfig
from infra import folders
from infra.store.base import KeyExistsError, KeyMissingError, StoreError, key_parts
from infra.store.bucket import Bucket
from infra.store.bucket_errors import not_conditional

_INDEX = ".folder.json"
_LOCK_TIMEOUT_S = 1800
"""For another process of this machine to fetch what it is at."""


class FolderIndex(BaseModel):
    """What a folder holds: the object that is written last, and by which readers go."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    upload: str
    """Of this upload alone, so that a copy of another one is not taken for the folder."""
    files: dict[str, int]
    """Size of each file by its path in the folder, bytes."""


class S3Store:
    """Keys are objects below the prefix, which S3 shows whole or not at all.

    Creating is a conditional write, which one of several writers wins. The files of a folder are objects,
    too; the folder is there when its index is. Copies of folders lie below `cache` on this machine. Objects
    of names that begin with a dot are no keys.
    """

    shared = False

    def __init__(self, config: S3StoreConfig, cache: Path) -> None:
        self._config = config
        self._bucket = Bucket(config)
        self._root = f"{config.prefix}/"
        self._cache = cache.absolute() / config.bucket / config.prefix

    def check_writable(self) -> None:
        """Create and remove a key; StoreError when that is impossible, or possible twice."""
        probe = f"writable-{uuid.uuid4().hex}"
        self.create(probe, b"")
        try:
            if self._bucket.put_new(self._name(probe), b""):
                raise not_conditional(self._config)
        finally:
            self.remove(probe)
        with self._disk_explained():
            self._cache.mkdir(parents=True, exist_ok=True)
            folders.clear_scratch(self._cache)

    def read(self, key: str) -> bytes:
        """The bytes of a key; KeyMissingError when absent."""
        try:
            return self._bucket.get(self._name(key))
        except KeyMissingError as error:
            raise KeyMissingError(f"{key}: {error}") from None

    def create(self, key: str, data: bytes) -> None:
        """Write a key that must not exist yet; KeyExistsError when it does."""
        if not self._bucket.put_new(self._name(key), data):
            raise KeyExistsError(f"{key}: already in the store {self.uri('.')}")

    def replace(self, key: str, data: bytes) -> None:
        """Write a key, whether or not it exists."""
        self._bucket.put(self._name(key), data)

    def exists(self, key: str) -> bool:
        """Whether the key is there (a folder is not a key)."""
        return self._bucket.has(self._name(key))

    def list_folders(self, prefix: str) -> list[str]:
        """Keys of the folders right below a prefix that are whole, sorted."""
        depth = 0 if prefix == "." else len(key_parts(prefix))
        names = [name.removeprefix(self._root).split("/") for name in self._names_below(prefix)]
        return sorted("/".join(parts[:-1]) for parts in names if parts[depth + 1 :] == [_INDEX])

    def list(self, prefix: str) -> list[str]:
        """All keys below a folder prefix, sorted, also of folders that are half there."""
        keys = (name.removeprefix(self._root) for name in self._names_below(prefix))
        return sorted(key for key in keys if not any(part.startswith(".") for part in key.split("/")))

    def remove(self, prefix: str) -> None:
        """Remove a key or a whole folder, this machine's copy of it included; fine when absent."""
        names = [self._name(prefix), *self._names_below(prefix)]
        with self._disk_explained():
            shutil.rmtree(self.folder(prefix), ignore_errors=True)
            self._index_copy(prefix).unlink(missing_ok=True)
        self._bucket.delete([name for name in names if name.endswith(f"/{_INDEX}")])  # none is half there
        self._bucket.delete([name for name in names if not name.endswith(f"/{_INDEX}")])

    def folder(self, key: str) -> Path:
        """Where this machine's copy of a folder lies, if it has one."""
        return self._cache if key == "." else self._cache.joinpath(*key_parts(key))

    def scratch(self) -> Path:
        """A new empty folder in the file system of this machine's copies."""
        folder = folders.scratch(self._cache)
        with self._disk_explained():
            folder.mkdir(parents=True)
        return folder

    def upload(self, key: str, folder: Path) -> None:
        """Send a folder, and keep it as this machine's copy."""
        index = self._publish(key, self._send(key, folder))
        copy = self.folder(key)
        with self._disk_explained():
            folders.delete(copy)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder, copy)
            self._index_copy(key).write_text(index.model_dump_json())

    def put(self, key: str, folder: Path) -> None:
        """Send what lies in a folder; no copy of it stays here, where it would not be whole."""
        self._send(key, folder)
        with self._disk_explained():
            shutil.rmtree(folder)

    def publish(self, key: str, names: Collection[str]) -> None:
        """Write the index of the parts, by which readers go."""
        self._publish(key, names)

    def local(self, key: str) -> Path:
        """`folder(key)` with its files, fetched unless they are there; KeyMissingError for none."""
        index = self._index(key)
        if not self._holds(key, index):
            with self._disk_explained():
                self._cache.mkdir(parents=True, exist_ok=True)
                with FileLock(self._cache / ".lock", timeout=_LOCK_TIMEOUT_S):
                    if not self._holds(key, index):
                        self._forget_beside(key)
                        self._fetch(key, index, self.folder(key))
                        self._index_copy(key).write_text(index.model_dump_json())
        return self.folder(key)

    def fetch(self, key: str, target: Path) -> int:
        """Copy a folder to `target`, which appears whole or not at all; the bytes copied."""
        index = self._index(key)
        self._fetch(key, index, target)
        return sum(index.files.values())

    def uri(self, key: str) -> str:
        """The s3:// address of a key or folder."""
        return f"s3://{self._config.bucket}/{self._config.prefix if key == '.' else self._name(key)}"

    def _forget_beside(self, key: str) -> None:
        """Remove this machine's copies of folders beside one that are in the store no more."""
        above = self.folder(key).parent
        if above == self._cache or not above.is_dir():
            return
        kept = {name.rpartition("/")[2] for name in self.list_folders(key.rpartition("/")[0])}
        for path in above.iterdir():
            if not path.name.startswith(".") and path.name not in kept:
                folders.delete(path)
                folders.delete(path.with_name(f".{path.name}{_INDEX}"))

    def _send(self, key: str, folder: Path) -> Collection[str]:
        """The names of what was sent. What was there before is no folder from here on."""
        files = {path.relative_to(folder).as_posix(): path for path in folders.files_below(folder)}
        self._bucket.delete([self._index_name(key)])
        if not files:
            raise KeyMissingError(f"{key}: nothing lies in {folder}")
        with self._disk_explained():
            self._bucket.upload({self._name(f"{key}/{name}"): path for name, path in files.items()})
        return files

    def _publish(self, key: str, names: Collection[str]) -> FolderIndex:
        base = f"{self._name(key)}/"
        sent = {name.removeprefix(base): size for name, size in self._bucket.sizes(base).items()}
        if missing := sorted(set(names) - sent.keys()):
            raise KeyMissingError(f"{key}: {missing[0]} was not put into {self.uri(key)}")
        self._bucket.delete([base + name for name in sent.keys() - set(names)])
        index = FolderIndex(upload=uuid.uuid4().hex, files={name: sent[name] for name in names})
        self._bucket.put(self._index_name(key), index.model_dump_json().encode())
        return index

    def _fetch(self, key: str, index: FolderIndex, target: Path) -> None:
        with folders.atomic(target) as partial:
            for name in index.files:
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
            self._bucket.download({self._name(f"{key}/{name}"): partial / name for name in index.files})
            if self._index(key) != index:
                raise StoreError(f"{self.uri(key)} was replaced while it was read: read it again")

    def _index(self, key: str) -> FolderIndex:
        try:
            return FolderIndex.model_validate_json(self._bucket.get(self._index_name(key)))
        except KeyMissingError as error:
            raise KeyMissingError(f"{key}: {error}") from None

    def _holds(self, key: str, index: FolderIndex) -> bool:
        """Whether this machine has a copy of just this upload, whole."""
        folder = self.folder(key)
        try:
            copied = FolderIndex.model_validate_json(self._index_copy(key).read_bytes())
            sizes = {name: (folder / name).stat().st_size for name in index.files}
        except (OSError, ValueError):
            return False
        return copied == index and sizes == index.files

    def _index_copy(self, key: str) -> Path:
        """Beside the folder, which holds nothing but its files."""
        folder = self.folder(key)
        return folder.with_name(f".{folder.name}{_INDEX}")

    def _index_name(self, key: str) -> str:
        return f"{self._name(key)}/{_INDEX}"

    def _names_below(self, prefix: str) -> Sequence[str]:
        return list(self._bucket.sizes(self._root if prefix == "." else f"{self._name(prefix)}/"))

    def _name(self, key: str) -> str:
        return self._root + "/".join(key_parts(key))

    @contextlib.contextmanager
    def _disk_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"this machine's copies cannot be kept ({error.strerror}: {error.filename or self._cache}): "
                "free space or permit writing there, or set OVERNIGHT_HOME to another folder"
            ) from error
