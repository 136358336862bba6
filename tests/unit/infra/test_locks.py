"""A lock file is held by one process at a time, which its death ends."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.locks import is_held, locked

HOLD = """
import sys
from pathlib import Path
from infra.locks import locked
with locked(Path(sys.argv[1]), 0, RuntimeError):
    print("held", flush=True)
    sys.stdin.readline()
"""


class Taken(Exception):
    """What a test's lock raises."""


@contextmanager
def another_process_holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """In a folder that is not there yet."""
    return tmp_path / "locks" / "a.lock"


def test_the_holder_is_told_however_often_one_asks_and_its_death_lets_go(path: Path) -> None:
    with another_process_holding(path) as holder:
        for _ in range(2):
            with pytest.raises(Taken, match=f"^{holder.pid}$"), locked(path, 0, Taken):
                pass
        holder.kill()
        holder.wait()
        with locked(path, 0, Taken):
            assert path.read_text() == str(os.getpid())


def test_a_wait_ends_when_the_holder_lets_go(path: Path) -> None:
    with another_process_holding(path) as holder:
        started = time.monotonic()
        with pytest.raises(Taken), locked(path, 0.3, Taken):
            pass
        assert time.monotonic() - started >= 0.3
        holder.stdin.write("\n")
        holder.stdin.flush()
        with locked(path, 30, Taken):
            pass


def test_an_error_lets_go_and_a_second_hold_in_the_process_is_refused(path: Path) -> None:
    with pytest.raises(KeyError), locked(path, 0, Taken):
        raise KeyError("a bug")
    with locked(path, 0, Taken), pytest.raises(Taken), locked(path, 0, Taken):
        pass


def test_asking_who_holds_a_lock_neither_takes_nor_makes_it(path: Path) -> None:
    assert not is_held(path) and not path.exists()
    with another_process_holding(path) as holder:
        assert is_held(path) and is_held(path)
        assert path.read_text() == str(holder.pid)
    assert not is_held(path)
