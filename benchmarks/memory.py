"""`python -m benchmarks.memory PID...`: most anonymous memory of processes, until its input ends.

Pages of mapped files are left out: weights in the page cache can be dropped at any time. A process of
its own, since a sampling thread would wait for whoever holds the interpreter's lock.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PERIOD_S = 0.002


@contextmanager
def peak_memory(pids: Iterable[int]) -> Iterator[list[int]]:
    """What the processes hold together beyond what they held at first: a list that has the peak, bytes,
    once the block is left."""
    peak: list[int] = []
    command = [sys.executable, "-m", "benchmarks.memory", *map(str, pids)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sampler:
        assert sampler.stdin is not None and sampler.stdout is not None
        first = json.loads(sampler.stdout.readline())
        try:
            yield peak
        finally:
            sampler.stdin.close()
            peak.append(json.loads(sampler.stdout.readline()) - first)


def main() -> None:
    """Print the sum at first, and the largest one at the end."""
    files = [Path(f"/proc/{pid}/status") for pid in sys.argv[1:]]
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    most = _anonymous(files)
    print(most, flush=True)
    while not ended.is_set():
        time.sleep(_PERIOD_S)
        most = max(most, _anonymous(files))
    print(most, flush=True)


def _anonymous(files: Iterable[Path]) -> int:
    """Anonymous and shared memory of the processes together, bytes."""
    return sum(
        int(line.split()[1]) * 1024
        for file in files
        for line in file.read_text().splitlines()
        if line.startswith(("RssAnon", "RssShmem"))
    )


if __name__ == "__main__":
    main()
