"""A Ray node whose processes see none of the driver's folders, and the command with its actors there.

Run as a script it is the command, connected to such a node beforehand: the one-machine cluster that a run
would start is then there already.
"""

import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import ray

from infra.process import free_port, log_tail, spawn, stop_tree

_ADDRESS = "OVERNIGHT_TEST_RAY"
_HIDE = 'for folder in "$@"; do mount -t tmpfs none "$folder" || exit 1; done'


@dataclass(frozen=True)
class Elsewhere:
    """A Ray cluster of one node in a mount namespace of its own."""

    hidden: Sequence[Path]
    """The folders that are empty there at first."""
    port: int = field(default_factory=free_port)
    token: str = field(default_factory=lambda: secrets.token_hex(32))

    @property
    def environment(self) -> dict[str, str]:
        """With it processes find the cluster and are let in."""
        return {
            _ADDRESS: f"127.0.0.1:{self.port}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def files(self, suffix: str = "") -> list[str]:
        """The files that a process of the node sees in the hidden folders, by the end of their names."""
        return self._asked(suffix, *map(str, self.hidden)).split()

    def _asked(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "tests.support.elsewhere", "--files", *arguments]
        asked = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=120
        )
        assert asked.returncode == 0, asked.stderr
        return asked.stdout


@contextmanager
def running_elsewhere(log: Path, *hidden: Path) -> Iterator[Elsewhere]:
    """A node that does not see what lies in the folders; killed at the end with all that runs on it.

    Skips the test where mount namespaces are not permitted.
    """
    allowed = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True)
    if allowed.returncode:
        pytest.skip(f"no mount namespace can be made here: {allowed.stderr.strip()}")
    node = Elsewhere(hidden)
    sockets = Path(tempfile.mkdtemp(prefix="on-ray-", dir="/tmp"))
    start = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"]
    options = {
        "node-ip-address": "127.0.0.1",
        "port": node.port,
        "num-cpus": 64,
        "object-store-memory": 200 * 2**20,
        "include-dashboard": "false",
        "temp-dir": sockets,
    }
    command = [*start, *(f"--{name}={value}" for name, value in options.items())]
    script = f"{_HIDE}; exec {' '.join(command)}"
    process = spawn(["unshare", "-m", "sh", "-c", script, "sh", *map(str, hidden)], log, node.environment)
    try:
        _wait(node, process, log)
        yield node
    finally:
        left = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        stop_tree(process.pid, grace_s=3)
        for child in left:
            if child.is_running():
                child.kill()
        process.wait(timeout=30)
        shutil.rmtree(sockets, ignore_errors=True)


def _wait(node: Elsewhere, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(5):
        try:
            assert process.poll() is None, log_tail(log, 20)
            node.files()
            return
        except AssertionError:
            if process.poll() is not None:
                raise
    raise AssertionError(log_tail(log, 20))


def _list(suffix: str, folders: list[str]) -> list[str]:
    return [str(path) for folder in folders for path in Path(folder).rglob(f"*{suffix}") if path.is_file()]


def main() -> None:
    """Connect to the node, then list what it sees or be the command."""
    ray.init(
        os.environ[_ADDRESS], log_to_driver=False, _node_ip_address="127.0.0.1", logging_level=logging.ERROR
    )
    if sys.argv[1:2] == ["--files"]:
        listed = ray.remote(_list).options(num_cpus=0).remote(sys.argv[2], sys.argv[3:])
        files: list[str] = ray.get(listed, timeout=60)
        print("\n".join(files))
        return
    from flows.cli import main as overnight

    overnight()


if __name__ == "__main__":
    main()
