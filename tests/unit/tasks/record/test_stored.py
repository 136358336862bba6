"""Records carry the number of their schema; the schema before is read, a newer one is refused."""

import json
import math
from pathlib import Path

import pytest
from pydantic import BaseModel

from infra.store.base import KeyExistsError
from infra.store.local import LocalStore
from tasks.record.stored import (
    Document,
    Record,
    RecordUnreadable,
    create_record,
    read_record,
    replace_record,
)


class Note(Record):
    """Its first schema had a number for the text."""

    schema_number = 2
    text: str
    weight: float = 0.0

    @classmethod
    def upgraded(cls, document: Document) -> Document:
        return {**document, "text": str(document["text"])}


class Plain(Record):
    """A record that never changed."""

    text: str


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_a_record_is_written_with_its_number_and_read_back(store: LocalStore) -> None:
    note = Note(text="a", weight=math.inf)
    create_record(store, "note", note)
    assert json.loads(store.read("note")) == {"schema": 2, "text": "a", "weight": "Infinity"}
    assert read_record(store, "note", Note) == note
    with pytest.raises(KeyExistsError):
        create_record(store, "note", note)
    replace_record(store, "note", Note(text="b"))
    assert read_record(store, "note", Note).text == "b"


@pytest.mark.parametrize("number", [{}, {"schema": 1}])
def test_the_schema_before_is_brought_up(store: LocalStore, number: Document) -> None:
    store.create("note", json.dumps({"text": 7, **number}).encode())
    assert read_record(store, "note", Note) == Note(text="7")


def test_what_is_of_schema_1_needs_no_number(store: LocalStore) -> None:
    store.create("plain", b'{"text": "a"}')
    assert read_record(store, "plain", Plain) == Plain(text="a")


class Later(Note):
    """What a later release may make of it."""

    schema_number = 3


@pytest.mark.parametrize(
    ("model", "document", "line"),
    [
        (Note, {"schema": 3}, "note has schema 3 and this release reads up to 2: use a newer release"),
        (Later, {"text": 7}, "note has schema 1 and this release reads from 2: use an earlier release"),
        (Plain, {"schema": 0}, "note has schema 0 and this release reads from 1: use an earlier release"),
        (Note, {}, "note is broken: it is no record of schema 1"),
        (Plain, {"schema": "x"}, "note is broken: schema must be a number, not 'x'"),
        (Plain, {"schema": 1}, "note is broken or of another release: text: missing: give it a value"),
        (Plain, [], "note is broken or of another release: .* is not a mapping"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    store: LocalStore, model: type[BaseModel], document: object, line: str
) -> None:
    store.create("note", json.dumps(document).encode())
    with pytest.raises(RecordUnreadable, match=line) as error:
        read_record(store, "note", model)
    assert "\n" not in str(error.value)


def test_what_is_no_json_is_one_line(store: LocalStore) -> None:
    store.create("note", b'{"text": ')
    with pytest.raises(RecordUnreadable, match="note is broken: Invalid JSON"):
        read_record(store, "note", Note)
