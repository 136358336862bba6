"""The objects of an S3 bucket by name: every call with deadlines, bounded retries and clear errors."""

import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from boto3.s3.transfer import TransferConfig, create_transfer_manager
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import ClientError, IncompleteReadError, ReadTimeoutError, ResponseStreamingError

from configs.store import S3StoreConfig
from infra.store.base import StoreError
from infra.store.bucket_errors import explained, status_of

_PARALLEL = 8
_CLIENT = Config(
    connect_timeout=5,
    read_timeout=60,
    retries={"mode": "standard", "total_max_attempts": 4},
    tcp_keepalive=True,
    max_pool_connections=2 * _PARALLEL,
)
_TRANSFERS = TransferConfig(
    multipart_threshold=64 * 2**20,
    multipart_chunksize=32 * 2**20,
    max_concurrency=_PARALLEL,
    preferred_transfer_client="classic",  # the other one has retries of its own
)
_GET_ATTEMPTS = 3
_BROKEN_OFF = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)
"""An answer that began and did not end, which boto3 leaves to its callers."""
_CONFLICT_PAUSES_S = (0.1, 0.3, 1, 3)
_WRITER = "writer"
"""Metadata of a new object: which call wrote it."""
_DELETED_AT_ONCE = 1000


class Bucket:
    """A bucket. Every method may raise StoreError; credentials come from boto3's own chain."""

    def __init__(self, config: S3StoreConfig) -> None:
        self._config = config
        self._name = config.bucket

    def __getstate__(self) -> dict[str, Any]:
        """Without the connections, which do not travel."""
        return {name: value for name, value in self.__dict__.items() if name != "_client"}

    def get(self, name: str) -> bytes:
        """An object; KeyMissingError when absent."""
        with explained(self._config):
            for _ in range(_GET_ATTEMPTS - 1):
                try:
                    return self._get(name)
                except _BROKEN_OFF:
                    continue
            return self._get(name)

    def put(self, name: str, data: bytes) -> None:
        """Write an object, in place of what was there."""
        with explained(self._config):
            self._client.put_object(Bucket=self._name, Key=name, Body=data)

    def put_new(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one of that name; whether this call wrote it.

        A repeated request may find the object of the first one, whose answer was lost: its metadata says so.
        """
        writer = uuid.uuid4().hex
        with explained(self._config):
            for pause_s in _CONFLICT_PAUSES_S:
                try:
                    self._client.put_object(
                        Bucket=self._name, Key=name, Body=data, IfNoneMatch="*", Metadata={_WRITER: writer}
                    )
                    return True
                except ClientError as error:
                    if status_of(error) == 412:
                        return self._writer_of(name) == writer
                    if status_of(error) != 409:  # other writes of the object are under way
                        raise
                time.sleep(pause_s)
        raise StoreError(
            f"store.bucket {self._name}: others write {name} all the time: set store.prefix to another"
        )

    def has(self, name: str) -> bool:
        """Whether there is an object of that name."""
        with explained(self._config):  # a HEAD would not tell a missing object from a missing bucket
            answer = self._client.list_objects_v2(Bucket=self._name, Prefix=name, MaxKeys=1)
        return any(item["Key"] == name for item in answer.get("Contents", ()))

    def sizes(self, prefix: str) -> dict[str, int]:
        """All objects whose names begin so, with their sizes in bytes."""
        with explained(self._config):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix=prefix)
            return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; fine when absent."""
        for start in range(0, len(names), _DELETED_AT_ONCE):
            objects = [{"Key": name} for name in names[start : start + _DELETED_AT_ONCE]]
            with explained(self._config):
                answer = self._client.delete_objects(
                    Bucket=self._name, Delete={"Objects": objects, "Quiet": True}
                )
            for failed in answer.get("Errors", ()):
                raise StoreError(
                    f"store.bucket {self._name}: {failed['Key']} cannot be deleted ({failed.get('Code')}): "
                    "give the credentials that right"
                )

    def upload(self, files: Mapping[str, Path]) -> None:
        """Write objects from files, several at once and large ones in parts."""
        with explained(self._config), create_transfer_manager(self._client, _TRANSFERS) as manager:
            sent = [manager.upload(str(path), self._name, name) for name, path in files.items()]
            for each in sent:
                each.result()

    def download(self, files: Mapping[str, Path]) -> None:
        """Write files from objects, several at once; KeyMissingError when one is absent."""
        with explained(self._config), create_transfer_manager(self._client, _TRANSFERS) as manager:
            received = [manager.download(self._name, name, str(path)) for name, path in files.items()]
            for each in received:
                each.result()

    @cached_property
    def _client(self) -> Any:
        session = Session()  # its own, since boto3's default one is not for several threads
        return session.client(
            "s3", endpoint_url=self._config.endpoint_url, region_name=self._config.region, config=_CLIENT
        )

    def _get(self, name: str) -> bytes:
        return self._client.get_object(Bucket=self._name, Key=name)["Body"].read()

    def _writer_of(self, name: str) -> str | None:
        try:
            return self._client.head_object(Bucket=self._name, Key=name)["Metadata"].get(_WRITER)
        except ClientError as error:
            if status_of(error) == 404:
                return None
            raise
