"""Knowing a process again."""

from typing import Self

import psutil
from pydantic import BaseModel, ConfigDict

_DRIFT_S = 60
"""How far the creation time of a process may move as its machine's clock is set right: the kernel keeps it
relative to the boot. No id is used again so soon."""


class ProcessRef(BaseModel):
    """One process for good: its id and its creation time, so that a recycled id is not taken for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    pid: int
    created: float
    """Unix time, seconds."""

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this id now; psutil.NoSuchProcess when there is none."""
        return cls(pid=pid, created=psutil.Process(pid).create_time())

    @property
    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < _DRIFT_S
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
