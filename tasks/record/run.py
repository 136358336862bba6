"""A training run: its id, configuration and the keys of what it stores."""

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from configs.run import RunConfig
from infra.home import Home
from infra.locks import is_held
from infra.store import open_store
from infra.store.base import Store
from tasks.record.commits import CommitLog
from tasks.record.keys import Numbered, numbered_key, numbers_in, run_key
from tasks.record.night import Night, Origin

MODELS = "models"
"""Folder of the store for what its runs start from, and no run's id."""
ABANDONED = "abandoned.json"
"""Record of a run that was given up."""


State = Literal["running", "unfinished", "finished", "abandoned"]


class Run(BaseModel):
    """Names a run; everything else about it is looked up in its store or in Ray. Cheap to pass around."""

    model_config = ConfigDict(frozen=True)
    id: str
    config: RunConfig
    home: Home
    """The state folder."""
    night: Night | None = None
    """Its place in a lineage; None for a run that was started by hand."""

    @cached_property
    def store(self) -> Store:
        """The store that holds the run."""
        return open_store(self.config.store, self.home)

    @cached_property
    def commits(self) -> CommitLog:
        """The run's finished steps."""
        return CommitLog(self.store, self.id)

    @property
    def created_at(self) -> float:
        """When this machine came to know the run, Unix time in seconds."""
        return (self.home.registry / f"{self.id}.json").stat().st_mtime

    @property
    def namespace(self) -> str:
        """Ray namespace of the run's actors."""
        return f"overnight-{self.id}"

    @property
    def origin(self) -> Origin | None:
        """The version of an earlier run that is this one's version 0; None where that is `config.model`."""
        return self.night.origin if self.night else None

    def remaining_steps(self) -> range:
        """Step numbers still to do; steps count from 1, step 0 is the initial weights."""
        newest = self.commits.newest()
        return range(newest.step + 1 if newest else 1, self.config.loop.steps + 1)

    @property
    def is_finished(self) -> bool:
        """Whether every step is committed."""
        return not self.remaining_steps()

    @property
    def is_abandoned(self) -> bool:
        """Whether somebody gave it up, finished or not."""
        return self.store.exists(self.record_key(ABANDONED))

    @property
    def lock(self) -> Path:
        """The lock file of whoever works on the run, on this machine."""
        return self.home.locks / f"{self.id}.lock"

    @property
    def state(self) -> State:
        """running: a process of this machine works on it, if only to evaluate. abandoned: it was given up.
        finished: it has its steps. unfinished: the next night or a resume goes on with it."""
        if is_held(self.lock):
            return "running"
        if self.is_abandoned:
            return "abandoned"
        return "finished" if self.is_finished else "unfinished"

    def generates_ahead(self, step: int) -> bool:
        """Whether the step after `step` is generated while `step` trains."""
        return self.config.loop.mode == "ahead" and step < self.config.loop.steps

    def evaluates_after(self, step: int) -> bool:
        """Whether training pauses for an evaluation of the version that `step` made."""
        evaluation = self.config.evaluation
        if step == 0:
            return evaluation.at_start
        return evaluation.every is not None and step % evaluation.every == 0

    def step_key(self, step: int, name: str) -> str:
        """Key of a file of a step, such as `rollouts.parquet`."""
        return numbered_key(self.id, "steps", step, name)

    def weights_key(self, version: int) -> str:
        """Key of the exported Hugging Face folder of a weight version."""
        return numbered_key(self.id, "weights", version)

    def checkpoint_key(self, step: int) -> str:
        """Key of the trainer checkpoint folder after a step."""
        return numbered_key(self.id, "checkpoints", step)

    def version_key(self, version: int, name: str) -> str:
        """Key of a record of a weight version, which stays when its weights are pruned."""
        return numbered_key(self.id, "versions", version, name)

    def record_key(self, name: str) -> str:
        """Key of a record of the whole run, such as `aliases.json`."""
        return run_key(self.id, name)

    def numbers(self, folder: Numbered) -> list[int]:
        """The steps or versions of which there is something in a folder of the run, ascending."""
        return numbers_in(self.store.list(run_key(self.id, folder)))
