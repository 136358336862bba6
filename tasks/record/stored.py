"""Reading the JSON records of a run store."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from configs.errors import UserError
from configs.loading import describe
from infra.store.base import Store

M = TypeVar("M", bound=BaseModel)


class RecordUnreadable(UserError):
    """A record cannot be understood; the message names it."""


def read_record(store: Store, key: str, model: type[M]) -> M:
    """The record of a key; KeyMissingError when absent, RecordUnreadable when it cannot be used."""
    try:
        return model.model_validate_json(store.read(key))
    except ValidationError as error:
        raise RecordUnreadable(f"{key} is broken or of another release: {describe(error)}") from None
