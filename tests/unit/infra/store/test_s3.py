"""What is S3's own: folders over several machines, lost answers, and errors that say what to change."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from configs.store import S3StoreConfig
from infra.process import free_port
from infra.store.base import KeyExistsError, KeyMissingError, StoreError
from infra.store.s3 import S3Store
from tests.support.s3 import ENVIRONMENT, S3Server

pytestmark = pytest.mark.slow
Hook = Callable[[str, Callable[..., Any]], None]
KEY = "a/weights/000001"


@pytest.fixture
def config(s3: S3Server) -> S3StoreConfig:
    return s3.config()


@pytest.fixture
def store(config: S3StoreConfig, tmp_path: Path) -> S3Store:
    return S3Store(config, tmp_path / "here")


@pytest.fixture
def elsewhere(config: S3StoreConfig, tmp_path: Path) -> S3Store:
    """The same store on another machine."""
    return S3Store(config, tmp_path / "there")


@pytest.fixture
def on_event(store: S3Store) -> Iterator[Hook]:
    """Have a handler called before all others at an event of botocore's; it may answer in S3's place."""
    registered: list[tuple[str, Callable[..., Any]]] = []
    events = store._bucket._client.meta.events

    def register(event: str, handler: Callable[..., Any]) -> None:
        events.register_first(event, handler)
        registered.append((event, handler))

    yield register
    for event, handler in registered:
        events.unregister(event, handler)


def put(store: S3Store, **files: bytes) -> None:
    """Make the folder KEY of the files and upload it."""
    store.upload(KEY, filled(store, **files))


def filled(store: S3Store, **files: bytes) -> Path:
    """A scratch folder with files."""
    folder = store.scratch()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def answer(status: int, code: str) -> AWSResponse:
    """A refusal as S3 words it."""
    body = io.BytesIO(f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())
    body.stream = lambda **_: iter([body.getvalue()])  # type: ignore[attr-defined]
    return AWSResponse("http://s3", status, {"content-type": "application/xml"}, body)


def test_a_folder_is_fetched_once_to_each_machine(store: S3Store, elsewhere: S3Store) -> None:
    put(store, weights=b"one")
    fetched = elsewhere.local(KEY) / "weights"
    assert fetched.read_bytes() == b"one" and fetched != store.folder(KEY) / "weights"
    inode = fetched.stat().st_ino
    assert (elsewhere.local(KEY) / "weights").stat().st_ino == inode
    assert [path.name for path in elsewhere.local(KEY).iterdir()] == ["weights"]


def test_a_copy_that_is_not_whole_or_of_an_earlier_upload_is_fetched_anew(
    store: S3Store, elsewhere: S3Store
) -> None:
    put(store, weights=b"one")
    (elsewhere.local(KEY) / "weights").write_bytes(b"on")
    assert (elsewhere.local(KEY) / "weights").read_bytes() == b"one"
    put(store, weights=b"two")
    assert (elsewhere.local(KEY) / "weights").read_bytes() == b"two"


def test_copies_of_folders_that_were_pruned_go_when_the_next_is_fetched(
    store: S3Store, elsewhere: S3Store
) -> None:
    put(store, weights=b"one")
    other = f"{KEY[:-1]}2"
    elsewhere.local(KEY)
    store.remove(KEY)
    assert elsewhere.folder(KEY).exists()
    store.upload(other, filled(store, weights=b"two"))
    elsewhere.local(other)
    assert [path.name for path in elsewhere.folder(KEY).parent.iterdir() if path.is_dir()] == ["000002"]


def test_a_copy_of_a_folder_that_was_removed_is_not_the_folder(store: S3Store, elsewhere: S3Store) -> None:
    put(store, weights=b"one")
    elsewhere.local(KEY)
    store.remove("a")
    with pytest.raises(KeyMissingError, match=KEY):
        elsewhere.local(KEY)


@pytest.mark.parametrize("sent", [1, 3])
def test_an_upload_that_was_killed_leaves_no_folder(
    config: S3StoreConfig, store: S3Store, elsewhere: S3Store, tmp_path: Path, sent: int
) -> None:
    files = {"config": b"{}", "tokenizer": b"abc", "weights": b"one"}
    put(store, **files)
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from configs.store import S3StoreConfig; from infra.store.bucket import Bucket\n"
        "from infra.store.s3 import S3Store\n"
        "upload = Bucket.upload\n"
        "def killed(bucket, files):\n"
        f"    upload(bucket, dict([*files.items()][:{sent}])); os.kill(os.getpid(), signal.SIGKILL)\n"
        "Bucket.upload = killed\n"
        "store = S3Store(S3StoreConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]))\n"
        f"store.upload({KEY!r}, Path(sys.argv[3]))\n"
    )
    source = filled(store, **{"config": b"{}", "tokenizer": b"abc", "weights-0": b"one"})
    arguments = [config.model_dump_json(), str(tmp_path / "here"), str(source)]
    uploader = subprocess.run([sys.executable, "-c", program, *arguments], timeout=60)
    assert uploader.returncode == -signal.SIGKILL and len(store.list(KEY)) >= sent
    assert elsewhere.list_folders("a/weights") == []
    for call in (elsewhere.local, lambda key: elsewhere.fetch(key, tmp_path / "copy")):
        with pytest.raises(KeyMissingError, match=KEY):
            call(KEY)
    store.upload(KEY, source)
    assert elsewhere.list_folders("a/weights") == [KEY]
    assert (elsewhere.local(KEY) / "weights-0").read_bytes() == b"one"


def test_a_folder_replaced_while_it_is_fetched_is_refused(
    store: S3Store, elsewhere: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, weights=b"one")
    download = elsewhere._bucket.download

    def replaced_meanwhile(files: dict[str, Path]) -> None:
        download(files)
        put(store, weights=b"two")

    monkeypatch.setattr(elsewhere._bucket, "download", replaced_meanwhile)
    with pytest.raises(StoreError, match=f"{KEY} was replaced while it was read: read it again"):
        elsewhere.fetch(KEY, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_large_files_travel_in_parts(store: S3Store, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 70
    put(store, weights=data)
    assert store.fetch(KEY, tmp_path / "copy") == len(data)
    assert (tmp_path / "copy" / "weights").read_bytes() == data


def test_more_objects_than_one_answer_holds(store: S3Store) -> None:
    put(store, **{f"{number:04d}": b"" for number in range(1005)})
    assert len(store.list(KEY)) == 1005
    store.remove("a")
    assert store.list(".") == []


def test_a_write_whose_answer_was_lost_counts(store: S3Store, on_event: Hook) -> None:
    """The first PUT is done and sent again, as after a time-out; the second finds what the first wrote."""
    statuses: list[int] = []

    def lose_the_first(response: Any, **_: Any) -> float | None:
        statuses.append(response[0].status_code)
        return 0.0 if len(statuses) == 1 else None

    on_event("needs-retry.s3.PutObject", lose_the_first)
    store.create("a/commit.json", b"mine")
    assert statuses == [200, 412]
    with pytest.raises(KeyExistsError):
        store.create("a/commit.json", b"mine")


def test_a_write_that_met_another_one_is_tried_again(
    store: S3Store, on_event: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.store.bucket._CONFLICT_PAUSES_S", (0.01, 0.01))
    conflicts = iter([answer(409, "ConditionalRequestConflict")])
    on_event("before-send.s3.PutObject", lambda **_: next(conflicts, None))
    store.create("a/commit.json", b"mine")
    assert next(conflicts, None) is None and store.read("a/commit.json") == b"mine"
    on_event("before-send.s3.PutObject", lambda **_: answer(409, "ConditionalRequestConflict"))
    with pytest.raises(StoreError, match=r"others write .*/a/other\.json all the time: set store\.prefix"):
        store.create("a/other.json", b"mine")


def without_condition(request: Any, **_: Any) -> None:
    """What a server that knows no If-None-Match reads of a request."""
    del request.headers["If-None-Match"]


@pytest.mark.parametrize(
    ("event", "handler"),
    [
        ("before-sign.s3.PutObject", without_condition),
        ("before-send.s3.PutObject", lambda **_: answer(501, "NotImplemented")),
    ],
)
def test_a_server_without_conditional_writes_is_refused(
    store: S3Store,
    on_event: Hook,
    event: str,
    handler: Callable[..., Any],
) -> None:
    on_event(event, handler)
    with pytest.raises(StoreError, match=r"without If-None-Match.* set store\.endpoint_url to a server"):
        store.check_writable()
    assert store.list(".") == []


def every_call(store: S3Store, source: Path, target: Path) -> list[Callable[[], object]]:
    """Everything that asks the server."""
    return [
        store.check_writable,
        lambda: store.create("a", b""),
        lambda: store.replace("a", b""),
        lambda: store.read("a"),
        lambda: store.exists("a"),
        lambda: store.list("."),
        lambda: store.list_folders("."),
        lambda: store.remove("a"),
        lambda: store.local("a"),
        lambda: store.upload(KEY, source),
        lambda: store.put(KEY, source),
        lambda: store.publish(KEY, ["weights"]),
        lambda: store.fetch("a", target),
    ]


def lines(store: S3Store, tmp_path: Path) -> set[str]:
    """What every call says when the server cannot be used."""
    source = filled(store, weights=b"one")
    told = set()
    for call in every_call(store, source, tmp_path / "copy"):
        with pytest.raises(StoreError) as caught:
            call()
        told.add(str(caught.value))
    assert not any("\n" in line or ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] in line for line in told)
    return told


def test_a_bucket_that_is_not_there(s3: S3Server, tmp_path: Path) -> None:
    (line,) = lines(S3Store(s3.config(bucket="nowhere"), tmp_path), tmp_path)
    assert line.startswith(f"store.bucket nowhere at {s3.endpoint_url} is not there: create it")


@pytest.mark.parametrize(
    ("variable", "reason"),
    [("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"), ("AWS_ACCESS_KEY_ID", "InvalidAccessKeyId")],
)
def test_credentials_that_are_wrong(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, reason: str
) -> None:
    monkeypatch.setenv(variable, "wrong")
    (line,) = lines(store, tmp_path)
    assert f"refuses the credentials ({reason}): set AWS_ACCESS_KEY_ID" in line


def test_no_credentials(store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    (line,) = lines(store, tmp_path)
    assert "needs credentials (Unable to locate credentials): set AWS_ACCESS_KEY_ID" in line


def test_a_profile_that_is_not_there(store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    (line,) = lines(store, tmp_path)
    assert "needs credentials (The config profile (nobody) could not be found)" in line


def test_an_endpoint_that_does_not_answer(s3: S3Server, tmp_path: Path) -> None:
    endpoint_url = f"http://127.0.0.1:{free_port()}"
    store = S3Store(s3.config(endpoint_url=endpoint_url), tmp_path)
    with pytest.raises(StoreError) as caught:
        store.check_writable()
    line = str(caught.value)
    assert f"at {endpoint_url} does not answer (Could not connect" in line and "\n" not in line
    assert line.endswith("start the server or mend the network, or set store.endpoint_url to another")


def test_a_disk_without_room_for_copies(store: S3Store, elsewhere: S3Store, tmp_path: Path) -> None:
    put(store, weights=b"one")
    (tmp_path / "there").write_text("not a folder")
    with pytest.raises(StoreError, match=r"copies cannot be kept \(.*/there.*set OVERNIGHT_HOME") as caught:
        elsewhere.local(KEY)
    assert "\n" not in str(caught.value)
