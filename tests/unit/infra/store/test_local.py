"""What is the local store's own: several processes, leftovers, and errors that say what to change."""

import multiprocessing
import os
import resource
import time
from pathlib import Path

import pytest

from infra.store.base import KeyExistsError, StoreError
from infra.store.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "runs")


def _create(root: Path, writer: int, start: float, won: "multiprocessing.Queue[int]") -> None:
    store = LocalStore(root)
    time.sleep(max(0.0, start - time.time()))
    for key in range(20):
        try:
            store.create(f"race/{key}", str(writer).encode() * 4096)
            won.put(key)
        except KeyExistsError:
            pass


def test_racing_processes_create_each_key_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    won: multiprocessing.Queue[int] = context.Queue()
    start = time.time() + 0.3
    racers = [context.Process(target=_create, args=(tmp_path, writer, start, won)) for writer in range(4)]
    for racer in racers:
        racer.start()
    assert sorted(won.get(timeout=30) for _ in range(20)) == list(range(20))
    for racer in racers:
        racer.join(timeout=30)
    assert won.empty()
    for key in LocalStore(tmp_path).list("race"):
        data = LocalStore(tmp_path).read(key)
        assert len(data) == 4096 and len(set(data)) == 1


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
