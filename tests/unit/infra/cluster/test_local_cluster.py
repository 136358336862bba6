"""Each cluster is started by a driver process of its own, as a run does."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from configs.cluster import LocalClusterConfig
from infra.cluster.local import ClusterError
from infra.home import Home
from infra.identity import ProcessRef
from infra.process import stop_tree, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.services]

DRIVER = """
import subprocess, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import ray
from configs.cluster import LocalClusterConfig
from infra.home import Home

class Engine:
    def spawn(self):
        self.child = subprocess.Popen(["sleep", "600"])
        return self.child.pid

cluster = LocalClusterConfig().build(Home(Path(sys.argv[1])))
with ThreadPoolExecutor() as passing:  # a thread that ends, such as a flow's task
    passing.submit(cluster.start).result()
cluster.start()
engines = [ray.remote(Engine).options(num_cpus=4).remote() for _ in range(2)]
print("engines", *ray.get([engine.spawn.remote() for engine in engines]), flush=True)
sys.stdin.readline()
print("nodes", len(ray.nodes()), flush=True)
cluster.stop()
cluster.stop()
print("stopped", flush=True)
sys.stdin.readline()
"""


@contextmanager
def driver(home: Path) -> Iterator[subprocess.Popen[str]]:
    # As a user of another Ray cluster may have set it.
    environment = {**os.environ, "RAY_ADDRESS": "127.0.0.1:1"}
    command = [sys.executable, "-c", DRIVER, str(home)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            stop_tree(process.pid)


def answer(process: subprocess.Popen[str], word: str) -> list[str]:
    assert process.stdout is not None
    line = process.stdout.readline().split()
    assert line and line[0] == word
    return line[1:]


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def cluster_folder(process: subprocess.Popen[str]) -> Path:
    return Path(tempfile.gettempdir()) / f"overnight-ray-{process.pid}"


def nothing_left(members: list[ProcessRef]) -> bool:
    return not any(member.alive for member in members)


def references(members: list[psutil.Process]) -> list[ProcessRef]:
    return [ProcessRef.of(member.pid) for member in members]


def test_two_clusters_live_apart_on_loopback_and_stop_or_die_with_all_they_started(tmp_path: Path) -> None:
    with driver(tmp_path / "stopped") as stopped, driver(tmp_path / "killed") as killed:
        engines = [int(pid) for each in (stopped, killed) for pid in answer(each, "engines")]
        of_stopped, of_killed = family(stopped), family(killed)
        assert set(engines) <= {member.pid for member in of_stopped + of_killed}
        for member in of_stopped + of_killed:
            listening = [c.laddr.ip for c in member.net_connections() if c.status == psutil.CONN_LISTEN]
            assert all(ip.removeprefix("::ffff:") == "127.0.0.1" for ip in listening), (member, listening)
        rest_of_stopped, rest_of_killed = references(of_stopped), references(of_killed)

        killed.send_signal(signal.SIGKILL)
        wait_until(lambda: nothing_left(rest_of_killed), 20, "the end of the killed driver's cluster")
        wait_until(lambda: not cluster_folder(killed).exists(), 10, "the removal of its folder")

        go_on(stopped)
        assert answer(stopped, "nodes") == ["1"]
        assert answer(stopped, "stopped") == []
        assert nothing_left(rest_of_stopped)
        assert not cluster_folder(stopped).exists()
        assert list((tmp_path / "stopped" / "logs" / "ray").glob("raylet*"))


def test_a_temporary_folder_too_long_for_sockets_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "long/" * 10)
    with pytest.raises(ClusterError, match="set TMPDIR to a shorter one"):
        LocalClusterConfig().build(Home(tmp_path)).start()
