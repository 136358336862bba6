"""The Ray actor that holds one rank of the trainer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from infra.address import Address
from tasks.model.errors import TrainerError
from tasks.record.run import Run
from tasks.training.trainer import Trainer

if TYPE_CHECKING:
    from tasks.training.rank import TrainerRank

T = TypeVar("T")


class TrainerActor:
    """A process of the trainer, on any machine that reaches the run's store."""

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

        self._trainer = TrainerRank(self._run, self._rank, address, port)

    def ask(self, question: Callable[[Trainer], T]) -> T:
        """What this rank answers."""
        if self._trainer is None:
            raise TrainerError("the trainer's ranks have not joined: start the group again")
        return question(self._trainer)

    def obey(self, question: Callable[[Trainer], object]) -> None:
        """Take part in what rank 0 answers for all."""
        self.ask(question)
