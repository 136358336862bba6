"""Logs keep within a size, and what went before is one file."""

import subprocess
import sys
from pathlib import Path

from infra.logs import begin_anew

CHATTY = """
import sys, time
from pathlib import Path
from infra.logs import bound_output

bound_output(Path(sys.argv[1]), limit_bytes=20_000, every_s=0.02)
for number in range(2000):
    print(f"line {number:06d} " + "x" * 80, flush=True)
    if number % 20 == 0:
        time.sleep(0.01)
print("the end", file=sys.stderr)
"""


def test_a_process_keeps_its_own_log_within_a_size(tmp_path: Path) -> None:
    log = tmp_path / "chatty.log"
    with log.open("ab") as output:
        subprocess.run(
            [sys.executable, "-c", CHATTY, str(log)], stdout=output, stderr=output, check=True, timeout=60
        )
    kept = sorted(tmp_path.iterdir())
    assert [path.name for path in kept] == ["chatty.log", "chatty.log.1"]
    assert sum(path.stat().st_size for path in kept) < 100_000 < 2000 * 93
    lines = [line for path in reversed(kept) for line in path.read_text().splitlines()]
    assert lines[-1] == "the end"
    numbers = [int(line.split()[1]) for line in lines[:-1]]
    assert numbers == list(range(numbers[0], 2000))  # nothing is lost in between


def test_a_log_that_is_there_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    begin_anew(log)
    for text in ("first", "second"):
        log.write_text(text)
        begin_anew(log)
    assert not log.exists() and (tmp_path / "server.log.1").read_text() == "second"
    log.write_text("short")
    begin_anew(log, above_bytes=100)
    assert log.exists()
