"""What every store keeps to: create-only, whole or absent, on any machine."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from configs.store import StoreConfig
from infra.home import Home
from infra.process import wait_until
from infra.store import open_store
from infra.store.base import KeyExistsError, KeyMissingError, Store

WEIGHTS = {"config.json": b"{}", "model.safetensors": b"\x00" * 100_000, "parts/1.bin": b"part"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def store(config: StoreConfig, home: Home) -> Store:
    return open_store(config, home)


def put(store: Store, key: str, files: dict[str, bytes] = WEIGHTS) -> None:
    """Make a folder and upload it."""
    store.upload(key, filled(store, files))


def filled(store: Store, files: dict[str, bytes]) -> Path:
    """A scratch folder with files."""
    folder = store.scratch()
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def held(folder: Path) -> dict[str, bytes]:
    """The files below a folder by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_created_is_read_back(store: Store) -> None:
    store.create("a/steps/000001/commit.json", b"\x00one")
    assert store.read("a/steps/000001/commit.json") == b"\x00one"
    assert store.exists("a/steps/000001/commit.json")
    assert not store.exists("a/steps")
    assert not store.exists("a/steps/000001/commit")


def test_a_key_is_created_once(store: Store) -> None:
    store.create("a/commit.json", b"first")
    for again in (b"second", b"first"):
        with pytest.raises(KeyExistsError, match=r"a/commit\.json"):
            store.create("a/commit.json", again)
    assert store.read("a/commit.json") == b"first"


def test_replace_writes_over(store: Store) -> None:
    store.replace("a/state.json", b"first")
    store.replace("a/state.json", b"second")
    assert store.read("a/state.json") == b"second"


@pytest.mark.parametrize("key", ["a", "a/b/c", "a/commit.json/below-a-file"])
def test_missing_keys_and_folders_are_not_readable(store: Store, key: str) -> None:
    store.create("a/commit.json", b"")
    with pytest.raises(KeyMissingError, match=f"{key}: "):
        store.read(key)


def test_list_gives_sorted_keys_below_a_folder_only(store: Store) -> None:
    for key in ("a/steps/2", "a/steps/10", "a/other", "ab/steps/1"):
        store.create(key, b"")
    assert store.list("a/steps") == ["a/steps/10", "a/steps/2"]
    assert store.list("a") == ["a/other", "a/steps/10", "a/steps/2"]
    assert store.list(".") == ["a/other", "a/steps/10", "a/steps/2", "ab/steps/1"]
    assert store.list("nothing") == []


def test_remove_takes_keys_and_folders_and_forgives_absence(store: Store) -> None:
    for key in ("a/x/1", "a/x/2", "a/y", "a/xy"):
        store.create(key, b"")
    store.remove("a/x")
    store.remove("a/y")
    store.remove("a/y")
    store.remove("never/was")
    assert store.list(".") == ["a/xy"]


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a/.hidden", "a\\b", "a\0"]
)
def test_keys_that_could_leave_the_store_are_refused(store: Store, key: str, tmp_path: Path) -> None:
    calls: list[Callable[[str], object]] = [
        store.read,
        store.exists,
        store.list,
        store.list_folders,
        store.remove,
        store.folder,
        store.local,
        lambda key: store.upload(key, filled(store, WEIGHTS)),
        lambda key: store.put(key, filled(store, WEIGHTS)),
        lambda key: store.publish(key, WEIGHTS),
        store.uri,
        lambda key: store.create(key, b""),
        lambda key: store.replace(key, b""),
        lambda key: store.fetch(key, tmp_path / "copy"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="not a store key"):
            call(key)


def test_the_store_itself_cannot_be_removed(store: Store) -> None:
    with pytest.raises(ValueError, match="not a store key"):
        store.remove(".")


def test_a_usable_store_is_left_as_it_was(store: Store) -> None:
    store.create("a/b", b"")
    store.check_writable()
    assert store.list(".") == ["a/b"]
    assert store.folder(".").is_dir()


def test_racing_threads_create_each_key_once(store: Store) -> None:
    def create(writer: int) -> list[int]:
        won = []
        for key in range(8):
            try:
                store.create(f"race/{key}", str(writer).encode() * 4096)
                won.append(key)
            except KeyExistsError:
                pass
        return won

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert sorted(key for keys in won for key in keys) == list(range(8))
    for writer, keys in enumerate(won):
        assert all(store.read(f"race/{key}") == str(writer).encode() * 4096 for key in keys)


def test_a_killed_writer_leaves_no_key(config: StoreConfig, home: Home, store: Store) -> None:
    program = (
        "import sys; from pathlib import Path; from pydantic import TypeAdapter\n"
        "from configs.store import StoreConfig\n"
        "from infra.home import Home; from infra.store import open_store\n"
        "config = TypeAdapter(StoreConfig).validate_json(sys.argv[1])\n"
        "store = open_store(config, Home(Path(sys.argv[2])))\n"
        "data = b'x' * 2_000_000\n"
        "for n in range(100_000): store.create(f'a/{n:06d}', data); store.replace('a/state', data)\n"
    )
    for _ in range(2):
        writer = subprocess.Popen([sys.executable, "-c", program, config.model_dump_json(), str(home.root)])
        wait_until(lambda: len(store.list(".")) > 3, timeout_s=30, what="a written key", every_s=0.003)
        writer.kill()
        writer.wait(timeout=10)
        assert all(len(store.read(key)) == 2_000_000 for key in store.list("."))
        store.remove("a")


def test_a_folder_that_was_uploaded_is_there_and_its_files_are_keys(store: Store) -> None:
    put(store, "a/weights/000001")
    assert store.local("a/weights/000001") == store.folder("a/weights/000001")
    assert held(store.local("a/weights/000001")) == WEIGHTS
    assert store.list("a/weights") == [f"a/weights/000001/{name}" for name in sorted(WEIGHTS)]
    assert store.read("a/weights/000001/config.json") == b"{}"


def test_folders_are_those_right_below_a_prefix(store: Store) -> None:
    put(store, "a/weights/000001")
    put(store, "a/weights/000010")
    put(store, "ab/weights/000002")
    store.create("a/versions", b"")
    assert store.list_folders("a/weights") == ["a/weights/000001", "a/weights/000010"]
    assert store.list_folders("a/versions") == []
    assert store.list_folders("nothing") == []


def test_a_folder_uploaded_again_is_the_new_one(store: Store, tmp_path: Path) -> None:
    put(store, "a/weights")
    put(store, "a/weights", {"config.json": b"{1}"})
    assert store.list("a/weights") == ["a/weights/config.json"]
    assert store.fetch("a/weights", tmp_path / "copy") == 3
    assert held(tmp_path / "copy") == {"config.json": b"{1}"}


def test_a_fetched_copy_takes_the_place_of_an_older_one(store: Store, tmp_path: Path) -> None:
    put(store, "a/weights")
    copy = tmp_path / "copies" / "weights"
    copy.mkdir(parents=True)
    (copy / "old.bin").write_bytes(b"old")
    assert store.fetch("a/weights", copy) == sum(map(len, WEIGHTS.values()))
    assert held(copy) == WEIGHTS
    assert [path.name for path in copy.parent.iterdir()] == ["weights"]


def test_a_folder_that_is_not_there(store: Store, tmp_path: Path) -> None:
    put(store, "a/weights")
    store.remove("a/weights")
    assert not store.folder("a/weights").exists()
    calls: list[Callable[[str], object]] = [
        store.local,
        lambda key: store.fetch(key, tmp_path / "copy"),
        lambda key: store.upload(key, store.scratch()),
        lambda key: store.put(key, store.scratch()),
        lambda key: store.publish(key, WEIGHTS),
    ]
    for call in calls:
        with pytest.raises(KeyMissingError, match="a/weights: "):
            call("a/weights")
    assert store.list(".") == [] and not (tmp_path / "copy").exists()


@pytest.fixture
def elsewhere(config: StoreConfig, tmp_path: Path) -> Store:
    """The same store on another machine."""
    return open_store(config, Home(tmp_path / "another-home"))


def test_several_writers_make_a_folder_that_is_whole_when_the_last_publishes(
    store: Store, elsewhere: Store
) -> None:
    put(store, "a/saved", {"rank-0": b"old", "rank-1": b"old", "rank-2": b"old"})
    elsewhere.put("a/saved", filled(elsewhere, {"rank-9": b"of a try that died"}))
    scratch = filled(store, {"rank-0": b"zero", "index": b"{}"})
    store.put("a/saved", scratch)
    assert not scratch.exists()
    elsewhere.put("a/saved", filled(elsewhere, {"rank-1": b"one"}))
    store.publish("a/saved", ["index", "rank-0", "rank-1"])
    for reader in (store, elsewhere):
        assert held(reader.local("a/saved")) == {"index": b"{}", "rank-0": b"zero", "rank-1": b"one"}
    assert store.list("a") == [f"a/saved/{name}" for name in ("index", "rank-0", "rank-1")]
    assert store.list_folders("a") == ["a/saved"]


def test_parts_that_were_not_published_are_no_folder_and_go_with_it(store: Store, elsewhere: Store) -> None:
    store.put("a/saved", filled(store, {"rank-0": b"zero"}))
    assert store.list_folders("a") == []
    with pytest.raises(KeyMissingError, match="a/saved: "):
        elsewhere.local("a/saved")
    with pytest.raises(KeyMissingError, match="a/saved: rank-1 was not put"):
        store.publish("a/saved", ["rank-0", "rank-1"])
    store.remove("a/saved")
    with pytest.raises(KeyMissingError, match="rank-0 was not put"):
        elsewhere.publish("a/saved", ["rank-0"])


def test_an_uploaded_folder_is_gone_from_where_it_was_made(store: Store) -> None:
    scratch = filled(store, WEIGHTS)
    store.upload("a/weights", scratch)
    assert not scratch.exists()
    assert held(store.local("a/weights")) == WEIGHTS


def test_a_store_travels_to_other_processes(store: Store) -> None:
    put(store, "a/weights")
    travelled = pickle.loads(pickle.dumps(store))
    assert held(travelled.local("a/weights")) == WEIGHTS
    assert travelled.uri("a/weights") == store.uri("a/weights")


def test_addresses_are_of_the_kind_of_the_store(store: Store, config: StoreConfig) -> None:
    scheme = {"local": "file:///", "s3": "s3://"}[config.kind]
    assert store.uri("a/weights").startswith(scheme) and store.uri("a/weights").endswith("/a/weights")
