"""What ends a cluster whose driver was killed: `python -m infra.cluster.reaper PID CREATED FOLDER`.

Ray's daemons die with their driver, but their helpers linger for a minute, because they first try to report
the death to the daemons, and what actors spawned may not notice at all.
"""

import contextlib
import os
import select
import shutil
import sys
from pathlib import Path

import psutil

from infra.identity import ProcessRef

_ROUNDS = 10


def main() -> None:
    """Wait for the driver's death, then kill all processes of its cluster and remove the cluster's folder."""
    pid, created, folder = sys.argv[1:]
    wait_for_death(ProcessRef(pid=int(pid), created=float(created)))
    kill_users(Path(folder))
    shutil.rmtree(folder, ignore_errors=True)


def wait_for_death(driver: ProcessRef) -> None:
    """Block until the process is gone."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(driver.pid)
        if driver.alive:
            select.select([descriptor], [], [])


def kill_users(folder: Path) -> None:
    """Kill every process but this one that has a file open below the folder, and what it spawned."""
    for _ in range(_ROUNDS):
        users = [process for process in psutil.process_iter() if _uses(process, folder)]
        if not users:
            return
        victims = set(users)
        for user in users:
            with contextlib.suppress(psutil.NoSuchProcess):
                victims.update(user.children(recursive=True))
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        psutil.wait_procs(victims, timeout=1)


def _uses(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.pid != os.getpid() and any(
            Path(file.path).is_relative_to(folder) for file in process.open_files()
        )
    except psutil.Error:
        return False


if __name__ == "__main__":
    main()
