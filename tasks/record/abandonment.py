"""Giving a run up: nothing goes on with it."""

import contextlib
import time

from infra.store.base import KeyExistsError
from tasks.record.run import ABANDONED, Run
from tasks.record.stored import Record, create_record


class Abandonment(Record):
    """What `<run>/abandoned.json` holds."""

    abandoned_at: float
    """Unix time, seconds."""


def abandon_run(run: Run) -> None:
    """Give a run up for good: no night continues it or goes on from it, and `resume` refuses it.

    What it made stays. One that was given up before keeps its first record.
    """
    with contextlib.suppress(KeyExistsError):
        create_record(run.store, run.record_key(ABANDONED), Abandonment(abandoned_at=time.time()))
