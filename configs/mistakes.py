"""What pydantic finds wrong with a value, in words of people."""

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from configs.base import Section

_LONGEST = 60
"""Characters of a value that are quoted."""

_NOT_A = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text: put it in quotes",
    "tuple": "a list: write [a, b]",
    "list": "a list: write [a, b]",
    "dict": "a mapping: write {name: value}",
    "model": "a mapping: write {name: value}",
    "path": "a path",
}
"""By the first word of the error's type."""
_UNION_MEMBERS = {"str", "int", "float", "bool"}
"""What pydantic puts behind the place of a value that may be of several types."""
_BOUNDS = {
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "finite_number": "must be finite",
    "too_short": "has too few entries: at least {min_length}",
    "too_long": "has too many entries: at most {max_length}",
    "string_too_short": "has too few characters: at least {min_length}",
    "string_too_long": "has too many characters: at most {max_length}",
}


def dotted(root: type[Section], location: tuple[int | str, ...]) -> str:
    """Name of a setting as it stands in the YAML, such as `store.bucket`."""
    return ".".join(part for part, _ in _walk(root, location))


def explain(root: type[Section], mistake: ErrorDetails) -> str:
    """What is wrong with the value at its place, and what may stand there."""
    kind, value, context = mistake["type"], mistake["input"], mistake.get("ctx", {})
    fields = [info for _, info in _walk(root, mistake["loc"])]
    match kind:
        case "missing":
            return "missing: give it a value"
        case "extra_forbidden":
            siblings = _settings(fields[-2]) if len(fields) > 1 else root.model_fields
            meant = _meant(str(mistake["loc"][-1]), siblings)
            return f"unknown key: {meant or 'remove it or correct its spelling'}"
        case "union_tag_not_found":
            return f"kind missing: write kind: {_either(_kinds(fields[-1]))}"
        case "union_tag_invalid":
            return _unknown_choice(context["tag"], _kinds(fields[-1]), "kind ")
        case "literal_error":
            return _unknown_choice(
                value, [str(choice).strip("'") for choice in _choices(context["expected"])]
            )
        case "string_pattern_mismatch":
            meaning = " ".join((fields[-1].description or "").split()) if fields and fields[-1] else ""
            return f"{_quoted(value)} does not match {context['pattern']}{meaning and f': {meaning}'}"
    if kind in _BOUNDS:
        wanted = _BOUNDS[kind].format(**context)
        return f"{wanted}, not {_quoted(value)}" if wanted.startswith("must") else wanted
    if it := _NOT_A.get(kind.partition("_")[0]):
        return f"{_quoted(value)} is not {it}"
    return mistake["msg"].removeprefix("Value error, ")


def _walk(root: type[Section], location: tuple[int | str, ...]) -> Iterator[tuple[str, FieldInfo | None]]:
    """The names on the way to a place, each with its field; pydantic puts the kind of a section between."""
    settings: Mapping[str, FieldInfo] = root.model_fields
    parts = map(str, location)
    for part in parts:
        info = settings.get(part)
        if part in _UNION_MEMBERS and info is None:
            return
        yield part, info
        kind = next(parts, None) if info and info.discriminator else None
        settings = _settings(info, kind)


def _settings(info: FieldInfo | None, kind: str | None = None) -> Mapping[str, FieldInfo]:
    """The settings of a section, of the one of that kind or of all that the field may hold."""
    found: dict[str, FieldInfo] = {}
    for section in _sections(info):
        if kind is None or _kind_of(section) == kind:
            found |= section.model_fields
    return found


def _sections(info: FieldInfo | None) -> list[type[Section]]:
    if info is None:
        return []
    members = [info.annotation, *get_args(info.annotation)]
    bare = [get_args(member)[0] if get_origin(member) is Annotated else member for member in members]
    return [member for member in bare if isinstance(member, type) and issubclass(member, Section)]


def _kinds(info: FieldInfo | None) -> list[str]:
    return [kind for section in _sections(info) if (kind := _kind_of(section))]


def _kind_of(section: type[Section]) -> str | None:
    info = section.model_fields.get("kind")
    if info is None:
        return None
    return next(iter(get_args(info.annotation)), None) or str(info.default)


def _choices(expected: str) -> list[str]:
    """Pydantic's `'a', 'b' or 'c'`, taken apart."""
    return expected.replace(" or ", ", ").split(", ")


def _unknown_choice(value: Any, choices: list[str], what: str = "") -> str:
    meant = _meant(str(value), choices)
    return f"{what}must be {_either(choices)}, not {_quoted(value)}{f': {meant}' if meant else ''}"


def _meant(written: str, known: Iterable[str]) -> str:
    close = get_close_matches(written, list(known), n=1)
    return f"did you mean {close[0]}?" if close else ""


def _either(choices: list[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _quoted(value: Any) -> str:
    """The value as YAML has it, cut short."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
