"""Reading and writing the JSON records of a run store, each with the number of its schema."""

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json, to_json

from configs.errors import UserError
from configs.loading import describe
from infra.store.base import Store

M = TypeVar("M", bound=BaseModel)

Document = dict[str, Any]
"""A record as JSON has it."""

SCHEMA = "schema"
"""Where a document has the number of its schema; one without a number has schema 1."""


class Record(BaseModel):
    """A document that runs of a later release read again.

    A change of its fields takes the next schema number, and an `upgraded` from the schema before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    schema_number: ClassVar[int] = 1

    @classmethod
    def upgraded(cls, document: Document) -> Document:
        """A document of the schema before as one of `schema_number`; neither holds the number."""
        raise NotImplementedError(f"{cls.__name__} has no schema before {cls.schema_number}")


class RecordUnreadable(UserError):
    """A record cannot be understood; the message names it."""


def create_record(store: Store, key: str, record: Record) -> None:
    """Write a record under a new key; KeyExistsError when it is taken."""
    store.create(key, _encode(record))


def replace_record(store: Store, key: str, record: Record) -> None:
    """Write a record, in place of what the key held."""
    store.replace(key, _encode(record))


def read_record(store: Store, key: str, model: type[M]) -> M:
    """The record of a key, brought to this release's schema.

    KeyMissingError when absent, RecordUnreadable when it cannot be used.
    """
    data = store.read(key)
    try:
        document = from_json(data)
        if issubclass(model, Record) and isinstance(document, dict):
            document = _brought_up(document, key, model)
        return model.model_validate(document)
    except ValidationError as error:
        raise RecordUnreadable(f"{key} is broken or of another release: {describe(error)}") from None
    except ValueError as error:
        raise RecordUnreadable(f"{key} is broken: Invalid JSON: {error}") from None


def is_of_the_schema_before(name: str, number: int, newest: int) -> bool:
    """Whether what `name` holds has the schema before `newest`, else it has `newest` itself.

    RecordUnreadable for any other number.
    """
    if number > newest:
        raise RecordUnreadable(
            f"{name} has schema {number} and this release reads up to {newest}: use a newer release"
        )
    oldest = max(1, newest - 1)
    if number < oldest:
        raise RecordUnreadable(
            f"{name} has schema {number} and this release reads from {oldest}: use an earlier release"
        )
    return number < newest


def _encode(record: Record) -> bytes:
    document = {SCHEMA: record.schema_number, **record.model_dump(mode="json")}
    return to_json(document, indent=1, inf_nan_mode="strings")


def _brought_up(document: Document, key: str, model: type[Record]) -> Document:
    number = document.pop(SCHEMA, 1)
    if not isinstance(number, int):
        raise RecordUnreadable(f"{key} is broken: {SCHEMA} must be a number, not {number!r}")
    if not is_of_the_schema_before(key, number, model.schema_number):
        return document
    try:
        return model.upgraded(document)
    except (LookupError, TypeError, AttributeError):  # it lacks what a document of its schema has
        raise RecordUnreadable(f"{key} is broken: it is no record of schema {number}") from None
