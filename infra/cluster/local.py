"""A Ray cluster of one machine, bound to loopback, that lives and dies with the process that starts it."""

import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path

import ray
from ray._private import ray_constants
from ray.job_config import JobConfig

from configs.cluster import LocalClusterConfig
from configs.errors import UserError
from infra.address import Address
from infra.cluster.base import Cluster
from infra.cluster.reaper import kill_users
from infra.detached import spawn_detached
from infra.home import Home
from infra.identity import ProcessRef
from infra.process import LOOPBACK, stop_tree

_LOGICAL_CPUS = 64
"""What all actors together may ask for. Placement must never wait: the cores are shared anyway."""
_OBJECT_STORE_BYTES = 200 * 2**20
_LONGEST_FOLDER = 45
"""Ray adds up to 62 characters to make a socket's path, of which Linux allows 107."""
_START_TIMEOUT_S = 180

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray asks for a token by default; without this one it would write its own into the home directory.
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    # Without it Ray replaces a loopback address by the machine's own (ray/_private/services.py).
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # By default Ray's workers, the trainer and the engines here, give way to every other process.
    "RAY_worker_niceness": "0",
}

_stopped = threading.Event()
_reapers: list[ProcessRef] = []


class ClusterError(UserError):
    """The cluster cannot be started."""


class LocalCluster(Cluster):
    """The one-machine cluster of this process; a process has at most one.

    Its daemons, workers and what these spawn are killed when this process dies, however it dies. Other Ray
    clusters on the machine are neither joined nor disturbed.
    """

    def __init__(self, settings: LocalClusterConfig, home: Home) -> None:
        self._home = home

    def start(self) -> None:
        """Start the cluster and connect this process to it; fine when it runs. ClusterError when it fails."""
        if ray.is_initialized():
            return
        folder = _folder()
        _reapers.append(_spawn_reaper(folder, self._home.logs / "reaper.log"))
        started: Future[None] = Future()
        _stopped.clear()
        # A thread of its own, because the kernel kills Ray's daemons when the thread that started them ends.
        threading.Thread(
            target=_hold_cluster, args=(folder, started), name="ray-cluster", daemon=True
        ).start()
        try:
            started.result(timeout=_START_TIMEOUT_S)
        except Exception as error:
            self.stop()
            line = " ".join(str(error).split())[:300] or f"not up within {_START_TIMEOUT_S} s"
            raise ClusterError(f"Ray did not start on this machine: {line}") from error

    def stop(self) -> None:
        """Stop the cluster, keeping its logs in the state folder's `logs/ray`; fine when none runs."""
        ray.shutdown()
        _stopped.set()
        while _reapers:
            stop_tree(_reapers.pop().pid)
        logs = _folder() / "session_latest" / "logs"
        if logs.exists():
            kept = self._home.logs / "ray"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(logs, kept)
        shutil.rmtree(_folder(), ignore_errors=True)

    def kill(self) -> None:
        """Kill every process of the cluster. The reaper stays for what is being started at this moment."""
        kill_users(_folder())

    def address(self) -> Address:
        """The loopback address, both to listen on and to connect to."""
        return Address(bind=LOOPBACK, advertised=LOOPBACK)


def _hold_cluster(folder: Path, started: Future[None]) -> None:
    os.environ.update(_ENVIRONMENT)
    ray_constants.ENABLE_RAY_CLUSTER = False  # as in _ENVIRONMENT, for a Ray that is already imported
    try:
        ray.init(
            address="local",
            num_cpus=_LOGICAL_CPUS,
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address=LOOPBACK,
            _temp_dir=str(folder),
            job_config=_job_config(),
        )
    except BaseException as error:
        started.set_exception(error)
    else:
        started.set_result(None)
        _stopped.wait()


def _job_config() -> JobConfig:
    """Has workers import from where this process does: Ray's own habit is to look in the working directory
    first, whose packages may have the names of ours. `_client_job` is what turns that habit off."""
    searched = [str(folder.absolute()) for folder in map(Path, sys.path) if folder.exists()]
    return JobConfig(
        _client_job=True, _py_driver_sys_path=searched[::-1]
    )  # each is put before those before it


def _spawn_reaper(folder: Path, log: Path) -> ProcessRef:
    me = ProcessRef.of(os.getpid())
    command = [sys.executable, "-m", "infra.cluster.reaper", str(me.pid), str(me.created), str(folder)]
    return spawn_detached(command, dict(os.environ), log)


def _folder() -> Path:
    """Where the cluster of this process keeps its sockets and logs."""
    folder = Path(tempfile.gettempdir()) / f"overnight-ray-{os.getpid()}"
    if len(str(folder)) > _LONGEST_FOLDER:
        raise ClusterError(
            f"{folder.parent} is too long a path for Ray's sockets: set TMPDIR to a shorter one"
        )
    return folder
