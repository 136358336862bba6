"""The store of runs: immutable records by key, and folders for bulky files."""

from pathlib import Path
from typing import Protocol

from configs.errors import UserError


class KeyExistsError(FileExistsError):
    """A create-only key is already there."""


class KeyMissingError(FileNotFoundError):
    """A key is not there."""


class StoreError(UserError):
    """The store cannot be used: unwritable, full or gone. One line that names `store.path`."""


class Store(Protocol):
    """Keys are relative slash-separated paths such as `my-run/steps/000012/commit.json`.

    Parts of a key are neither empty nor begin with a dot (ValueError); where a folder is meant, `.` is the
    whole store. Every method may raise StoreError.
    """

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

    def list(self, prefix: str) -> list[str]:
        """All keys below a folder prefix, sorted; empty when there are none."""

    def remove(self, prefix: str) -> None:
        """Remove a key or a whole folder; fine when absent."""

    def folder(self, key: str) -> Path:
        """A local directory path for bulky files (weights, checkpoints); it is not created."""
