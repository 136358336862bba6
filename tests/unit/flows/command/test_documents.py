"""What --json prints: of every subcommand, of one set of keys, as docs/json-schema.json says."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from flows.cli import app
from flows.command.documents import DOCUMENTS, dump, schema

SCHEMA = Path(__file__).parents[4] / "docs" / "json-schema.json"


def commands() -> dict[str, Any]:
    """The functions of the subcommands, by name."""
    found = [
        command for group in app.registered_groups for command in group.typer_instance.registered_commands
    ]
    return {command.name or command.callback.__name__: command.callback for command in found}


def test_every_subcommand_has_json_and_a_document_that_says_what() -> None:
    assert {name for name, call in commands().items() if "as_json" in inspect.signature(call).parameters} == {
        *commands()
    }
    assert set(DOCUMENTS) == set(commands())


def test_the_schema_in_the_docs_is_that_of_the_documents(update_snapshots: bool) -> None:
    text = json.dumps(schema(), indent=1) + "\n"
    if update_snapshots:
        SCHEMA.write_text(text)
    assert SCHEMA.read_text() == text


def test_a_key_means_one_thing() -> None:
    """One key, one type; and no second word for what has one."""
    kinds: dict[str, set[str]] = {}
    for document in [*schema()["$defs"].values()]:
        for key, value in document.get("properties", {}).items():
            kinds.setdefault(key, set()).update(_types(value))
    assert not {"run", "weight_version", "checksum", "size"} & set(kinds)
    for key in ("run_id", "version", "hash", "bytes", "name", "steps", "state", "reward", "avg_at_k"):
        assert len(kinds[key] - {"null"}) == 1, (key, kinds[key])


def _types(value: dict[str, Any]) -> set[str]:
    return {
        "null" if each.get("type") == "null" else str(each.get("type", "string"))
        for each in value.get("anyOf", [value])
    }


def test_a_document_of_another_shape_is_not_printed() -> None:
    assert json.loads(dump("pause", {"name": "tiny", "paused": True})) == {"name": "tiny", "paused": True}
    with pytest.raises(ValueError, match="paused"):
        dump("pause", {"name": "tiny"})
