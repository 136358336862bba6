"""The store of runs: immutable records by key, and folders for bulky files."""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from configs.errors import RunFailure, UserError


class KeyExistsError(RunFailure):
    """A create-only key is already there."""


class KeyMissingError(RunFailure):
    """A key is not there."""


class StoreError(UserError):
    """The store cannot be used: unwritable, full or gone. One line that names a field of `store`."""


class StoreUnreachable(StoreError):
    """The store does not answer; it may do so later."""

    heals = True


class Store(Protocol):
    """Keys are relative slash-separated paths such as `my-run/steps/000012/commit.json`.

    Parts of a key are neither empty nor begin with a dot (ValueError); where a folder is meant, `.` is the
    whole store. Every method may raise StoreError.

    Bulky files (weights, checkpoints) are written to a `scratch()` folder by whoever makes them, on any
    machine. One writer makes a folder of the store of them with `upload`; several writers `put` their parts,
    and when all are there one of them makes them a folder with `publish`. It is read from `local(key)`, on
    any machine. The files of a folder in the store are keys, too.
    """

    shared: bool
    """Whether all machines see the same folders, so that none keeps copies."""

    def check_writable(self) -> None:
        """Write and remove a key; StoreError when that is impossible. For the preflight."""

    def read(self, key: str) -> bytes:
        """The bytes of a key; KeyMissingError when absent."""

    def create(self, key: str, data: bytes) -> None:
        """Write a key that must not exist yet, atomically and durably; KeyExistsError when it does."""

    def replace(self, key: str, data: bytes) -> None:
        """Write a key atomically, whether or not it exists."""

    def exists(self, key: str) -> bool:
        """Whether the key is there."""

    def list_folders(self, prefix: str) -> list[str]:
        """Keys of the folders right below a prefix that are whole, sorted; empty when there are none."""

    def list(self, prefix: str) -> list[str]:
        """All keys below a folder prefix, sorted, also of folders that are half there; empty for none."""

    def remove(self, prefix: str) -> None:
        """Remove a key or a whole folder, this machine's copy of it included; fine when absent."""

    def folder(self, key: str) -> Path:
        """Where the files of a folder lie on a machine that has them."""

    def scratch(self) -> Path:
        """A new empty folder of this machine for files that are to go into the store.

        What a killed process left in one is cleared a day later, by `check_writable`.
        """

    def upload(self, key: str, folder: Path) -> None:
        """Make a folder of this machine, which is gone then, the folder `key`, in place of an earlier one.

        Readers find it whole or not at all. KeyMissingError when nothing lies in it.
        """

    def put(self, key: str, folder: Path) -> None:
        """Take what lies in a folder of this machine, which is gone then, for parts of the folder `key`.

        Other processes, on other machines too, may put parts of other names. From here on readers may not
        find the folder, until it is published. KeyMissingError when nothing lies in it.
        """

    def publish(self, key: str, names: Collection[str]) -> None:
        """Make the parts of these names, which were put, the folder `key`, in place of an earlier one.

        All of them must have been put since the folder was last published: parts of then may still lie there.
        Others, of a try that was not finished, are removed. KeyMissingError when one is not there.
        """

    def local(self, key: str) -> Path:
        """`folder(key)` with its files, fetched where this machine has them not; KeyMissingError for none."""

    def fetch(self, key: str, target: Path) -> int:
        """Copy a folder to `target`, which appears whole or not at all; the bytes copied.

        KeyMissingError when it is not in the store, OSError when `target` cannot be written.
        """

    def uri(self, key: str) -> str:
        """What people can open or copy: file:// or s3://."""


def key_parts(key: str) -> list[str]:
    """The parts of a key; ValueError for what is none, such as one that would lead out of the store."""
    parts = key.split("/")
    if any(not part or part.startswith(".") or "\0" in part or "\\" in part for part in parts):
        raise ValueError(
            f"not a store key: {key!r} (relative, slash-separated, no part that begins with a dot)"
        )
    return parts
