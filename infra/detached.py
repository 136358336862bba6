"""Processes that outlive the command that starts them."""

import subprocess
from pathlib import Path

from infra.identity import ProcessRef

_NICENESS = "5"
"""Servers give way to the training that they serve."""

# The shell ends at once, so the server's parent becomes init: killing the caller's tree does not reach it.
_LAUNCH = 'nice -n "$0" "$@" >&2 & echo $!'


def spawn_detached(command: list[str], env: dict[str, str], log: Path) -> ProcessRef:
    """Start a server outside the caller's process tree, session and terminal, its output in `log`.

    `env` is its whole environment. psutil.NoSuchProcess when it ended at once.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        launched = subprocess.run(
            ["/bin/sh", "-c", _LAUNCH, _NICENESS, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            env=env,
            cwd=log.parent,  # not the caller's folder, whose files Python could take for modules
            start_new_session=True,
            check=True,
            timeout=30,
        )
    return ProcessRef.of(int(launched.stdout))
