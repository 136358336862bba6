"""Processes that outlive the command that starts them."""

import subprocess
import sys
from pathlib import Path

from infra.identity import ProcessRef

# The launcher ends at once, so the server's parent becomes init: killing the caller's tree does not reach it.
# Servers give way to the training that they serve.
_LAUNCHER = """
import os, subprocess, sys
os.nice(5)
print(subprocess.Popen(sys.argv[1:], stdout=sys.stderr).pid)
"""


def spawn_detached(command: list[str], env: dict[str, str], log: Path) -> ProcessRef:
    """Start a server outside the caller's process tree, session and terminal, its output in `log`.

    `env` is its whole environment. psutil.NoSuchProcess when it ended at once.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        launched = subprocess.run(
            [sys.executable, "-I", "-c", _LAUNCHER, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            env=env,
            cwd=log.parent,  # not the caller's folder, whose files Python could take for modules
            start_new_session=True,
            check=True,
            timeout=60,
        )
    return ProcessRef.of(int(launched.stdout))
