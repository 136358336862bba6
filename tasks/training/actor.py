"""The Ray actor that holds one rank of the trainer."""

from typing import TYPE_CHECKING, Any

from infra.address import Address
from tasks.model.errors import TrainerError
from tasks.record.batches import BatchUnreadable, read_batch
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.training.report import TrainReport

if TYPE_CHECKING:
    from tasks.training.rank import TrainerRank


class TrainerActor:
    """A process of the trainer. It reads batches from the run's store, so that only references travel."""

    def __init__(self, run: Run, rank: int) -> None:
        self._run = run
        self._rank = rank
        self._trainer: TrainerRank | None = None

    def meeting_point(self) -> tuple[str, int]:
        """Address of this node, and a port that is free on it."""
        address: Address = self._run.config.cluster.build(self._run.home).address()
        return address.advertised, address.free_port()

    def join(self, address: str, port: int) -> None:
        """Join the other ranks; blocks until all are there."""
        from tasks.training.rank import TrainerRank  # imports Megatron, which the driver does not need

        self._trainer = TrainerRank(self._run.config, self._rank, address, port)

    def train(self, step: int, batch: BatchRef, version: int | None) -> TrainReport:
        """Read a batch, check that it is the one meant, and apply it."""
        try:
            rollouts = read_batch(self._run.store, batch)
        except BatchUnreadable as error:
            raise TrainerError(str(error)) from None
        return self.call("train", step, rollouts, version)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the rank."""
        if self._trainer is None:
            raise TrainerError("the trainer's ranks have not joined: start the group again")
        return getattr(self._trainer, method)(*arguments)
