"""Logs that do not fill the disk: at a size a log becomes `NAME.1`, in place of the one before."""

import os
import sys
import threading
import time
from pathlib import Path

LOG_BYTES = 10_000_000
"""Size at which a log is begun anew; with the one before, a server keeps at most twice as much, and what is
written within `_EVERY_S`."""
_EVERY_S = 5.0


def begin_anew(log: Path, above_bytes: int = 0) -> None:
    """Put a log that is larger aside as `NAME.1`; fine when there is none."""
    if log.exists() and log.stat().st_size > above_bytes:
        log.replace(log.with_name(f"{log.name}.1"))


def bound_output(log: Path, limit_bytes: int = LOG_BYTES, every_s: float = _EVERY_S) -> None:
    """Keep this process's own output, which goes to `log`, within a size, for as long as it runs."""

    def watch() -> None:
        while True:
            time.sleep(every_s)
            if os.fstat(1).st_size > limit_bytes:
                begin_anew(log)
                with log.open("ab") as new:
                    sys.stdout.flush()
                    os.dup2(new.fileno(), 1)
                    os.dup2(new.fileno(), 2)

    threading.Thread(target=watch, name="log", daemon=True).start()
