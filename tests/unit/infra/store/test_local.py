"""The local store: create-only, whole or absent, and errors that say what to change."""

import multiprocessing
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.process import wait_until
from infra.store.base import KeyExistsError, KeyMissingError, StoreError
from infra.store.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "runs")


def test_what_is_created_is_read_back(store: LocalStore) -> None:
    store.create("a/steps/000001/commit.json", b"\x00one")
    assert store.read("a/steps/000001/commit.json") == b"\x00one"
    assert store.exists("a/steps/000001/commit.json")
    assert not store.exists("a/steps")


def test_a_key_is_created_once(store: LocalStore) -> None:
    store.create("a/commit.json", b"first")
    with pytest.raises(KeyExistsError, match=r"a/commit\.json"):
        store.create("a/commit.json", b"second")
    assert store.read("a/commit.json") == b"first"


def test_replace_writes_over(store: LocalStore) -> None:
    store.replace("a/state.json", b"first")
    store.replace("a/state.json", b"second")
    assert store.read("a/state.json") == b"second"


@pytest.mark.parametrize("key", ["a", "a/b/c", "a/commit.json/below-a-file"])
def test_missing_keys_and_folders_are_not_readable(store: LocalStore, key: str) -> None:
    store.create("a/commit.json", b"")
    with pytest.raises(KeyMissingError):
        store.read(key)


def test_list_gives_sorted_keys_below_a_folder_only(store: LocalStore) -> None:
    for key in ("a/steps/2", "a/steps/10", "a/other", "ab/steps/1"):
        store.create(key, b"")
    assert store.list("a/steps") == ["a/steps/10", "a/steps/2"]
    assert store.list("a") == ["a/other", "a/steps/10", "a/steps/2"]
    assert store.list(".") == ["a/other", "a/steps/10", "a/steps/2", "ab/steps/1"]
    assert store.list("nothing") == []


def test_remove_takes_keys_and_folders_and_forgives_absence(store: LocalStore) -> None:
    for key in ("a/x/1", "a/x/2", "a/y"):
        store.create(key, b"")
    store.remove("a/x")
    store.remove("a/y")
    store.remove("a/y")
    store.remove("never/was")
    assert store.list(".") == []


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a/.hidden", "a\\b", "a\0"]
)
def test_keys_that_could_leave_the_store_are_refused(store: LocalStore, key: str) -> None:
    calls: list[Callable[[str], object]] = [store.read, store.exists, store.list, store.remove, store.folder]
    for call in (*calls, lambda k: store.create(k, b""), lambda k: store.replace(k, b"")):
        with pytest.raises(ValueError, match="not a store key"):
            call(key)


def test_the_store_itself_cannot_be_removed(store: LocalStore) -> None:
    with pytest.raises(ValueError, match="not a store key"):
        store.remove(".")


def _create(root: Path, writer: int, start: float, won: "multiprocessing.Queue[int]") -> None:
    store = LocalStore(root)
    time.sleep(max(0.0, start - time.time()))
    for key in range(20):
        try:
            store.create(f"race/{key}", str(writer).encode() * 4096)
            won.put(key)
        except KeyExistsError:
            pass


def test_racing_threads_create_each_key_once(tmp_path: Path) -> None:
    won: multiprocessing.Queue[int] = multiprocessing.Queue()
    start = time.time() + 0.1
    racers = [threading.Thread(target=_create, args=(tmp_path, writer, start, won)) for writer in range(8)]
    _run_race(racers, tmp_path, won)


def test_racing_processes_create_each_key_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    won: multiprocessing.Queue[int] = context.Queue()
    start = time.time() + 0.3
    racers = [context.Process(target=_create, args=(tmp_path, writer, start, won)) for writer in range(4)]
    _run_race(racers, tmp_path, won)


def _run_race(racers: list, root: Path, won: "multiprocessing.Queue[int]") -> None:
    for racer in racers:
        racer.start()
    assert sorted(won.get(timeout=30) for _ in range(20)) == list(range(20))
    for racer in racers:
        racer.join(timeout=30)
    assert won.empty()
    for key in LocalStore(root).list("race"):
        data = LocalStore(root).read(key)
        assert len(data) == 4096 and len(set(data)) == 1


def test_a_killed_writer_leaves_no_key(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from infra.store.local import LocalStore\n"
        "store = LocalStore(Path(sys.argv[1]))\n"
        "data = b'x' * 2_000_000\n"
        "for n in range(100_000): store.create(f'a/{n:06d}', data); store.replace('a/state', data)\n"
    )
    store = LocalStore(tmp_path)
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
        wait_until(lambda: len(store.list(".")) > 3, timeout_s=30, what="a written key", every_s=0.003)
        writer.kill()
        writer.wait(timeout=10)
        assert all(len(store.read(key)) == 2_000_000 for key in store.list("."))
        store.remove("a")


def test_leftovers_are_never_keys_and_old_ones_are_cleaned_up(store: LocalStore, tmp_path: Path) -> None:
    store.create("a/b", b"")
    unfinished = tmp_path / "runs" / ".unfinished"
    old, fresh = unfinished / "old", unfinished / "fresh"
    old.write_bytes(b"half")
    fresh.write_bytes(b"being written")
    os.utime(old, (0, 0))
    assert store.list(".") == ["a/b"]
    store.check_writable()
    assert not old.exists() and fresh.exists()
    assert store.list(".") == ["a/b"]


def test_a_root_that_cannot_be_made_names_the_field(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = LocalStore(tmp_path / "file" / "runs")
    for call in (store.check_writable, lambda: store.create("a", b""), lambda: store.replace("a", b"")):
        with pytest.raises(
            StoreError, match=r"store\.path .*file/runs cannot be used \(Not a directory: "
        ) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert store.list(".") == []


def test_a_full_disk_leaves_nothing_behind(store: LocalStore, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # any longer file fails, as on a full disk
    try:
        with pytest.raises(StoreError, match=r"store\.path"):
            store.create("a/big", b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.list(".") == []
    assert list((tmp_path / "runs" / ".unfinished").iterdir()) == []
    store.create("a/big", b"x" * 2000)


def test_a_new_key_is_readable_by_others_as_the_umask_says(store: LocalStore, tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        store.create("a/b", b"")
    finally:
        os.umask(umask)
    assert (tmp_path / "runs/a/b").stat().st_mode & 0o777 == 0o644
