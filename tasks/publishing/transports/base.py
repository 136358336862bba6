"""What a transport is: the way in which weight versions travel to engines."""

from typing import Protocol

from infra.home import Home
from tasks.fleet.engines import Engine, Fleet
from tasks.publishing.transports.staged import StagedVersion
from tasks.record.run import Run
from tasks.record.weight_version import WeightVersion


class Transfer(Protocol):
    """Puts the tensors of a staged version into engines."""

    @property
    def name(self) -> str:
        """What the ledger calls it."""

    def transfer(self, engines: list[Engine], staged: StagedVersion) -> int:
        """Transfer to all the engines at once, which are paused meanwhile; bytes that travelled.

        What it raises leaves them with unverified weights.
        """


class Transport(Protocol):
    """A way to engines, made of its settings; what most have no need of does nothing by default."""

    def check(self, home: Home, weights_bytes: int) -> None:
        """Raise UserError, one line, where this machine cannot do it for a model of that size."""
        return

    def prepare(self, fleet: Fleet, weights: WeightVersion, held: bool) -> Transfer:
        """Do what can be done before engines are paused; what puts the version into those of a fleet.

        `held` says that the trainer has just made the version and still holds it.
        """

    def prune(self, run: Run, current: int) -> None:
        """Remove from the store what no machine needs once `current` is committed."""
        return

    def forget(self, run: Run) -> None:
        """Remove from the engines' machines what ends with the cluster."""
        return
