"""The driver's side of the trainer: its ranks are named Ray actors of the run."""

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from infra.process import wait_until
from infra.store.base import StoreError
from tasks.model.errors import TrainerError
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.training.actor import TrainerActor
from tasks.training.errors import StepRefused, TrainerLost
from tasks.training.report import TrainReport
from tasks.training.trainer import Trainer

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.model.bridge.buckets import TensorSpec
    from tasks.record.manifest import Manifest

__all__ = ["StepRefused", "TrainerError", "TrainerGroup", "TrainerLost"]

T = TypeVar("T")
_STOP_TIMEOUT_S = 30


class TrainerGroup(Trainer):
    """All ranks as one. Every call has a deadline; a rank that dies or hangs takes the group with it.

    Calls raise TrainerLost when the group is gone (it was killed; start and restore it), and another
    TrainerError when the trainer refuses, or a StoreError, its state unchanged.
    """

    def __init__(self, run: Run, actors: list[Any]) -> None:
        self._run = run
        self._actors = actors
        self._config = run.config.trainer

    @classmethod
    def start(cls, run: Run) -> "TrainerGroup":
        """Start every rank, in place of any that are left over; they hold no model yet."""
        cls(run, []).stop()
        group = cls(run, [_new_actor(run, rank) for rank in range(run.config.trainer.world_size)])
        deadline = time.monotonic() + run.config.trainer.start_timeout_s
        [(address, port)] = group._gather(
            "start", lambda actor: actor.meeting_point.remote(), deadline, ranks=1
        )
        group._gather("start", lambda actor: actor.join.remote(address, port), deadline)
        return group

    @classmethod
    def connect(cls, run: Run) -> "TrainerGroup":
        """The running group; TrainerLost when ranks of it are missing."""
        actors = _existing(run)
        if len(actors) != run.config.trainer.world_size:
            raise TrainerLost(
                f"{len(actors)} of {run.config.trainer.world_size} trainer ranks of {run.id} are running: "
                "start the group again"
            )
        return cls(run, actors)

    def alive(self) -> bool:
        """Whether every rank answers and holds a model; waits for a call that is in progress."""
        try:
            self.applied_step()
        except TrainerError:
            return False
        return True

    def stop(self) -> None:
        """Kill every rank and wait until they are gone; fine when they already are."""
        for actor in _existing(self._run):
            ray.kill(actor)
        wait_until(lambda: not _existing(self._run), _STOP_TIMEOUT_S, f"the end of {self._run.id}'s trainer")

    def load(self) -> None:
        """See Trainer."""
        self._ask("load", lambda rank: rank.load(), self._config.start_timeout_s)

    def restore(self, key: str) -> None:
        """See Trainer."""
        self._ask("restore", lambda rank: rank.restore(key), self._config.start_timeout_s)

    def save(self, key: str) -> None:
        """See Trainer."""
        self._ask("save", lambda rank: rank.save(key))

    def applied_step(self) -> int:
        """See Trainer; TrainerLost when the ranks disagree."""
        deadline = time.monotonic() + self._config.step_timeout_s
        steps = self._gather("applied_step", lambda actor: actor.ask.remote(_applied_step), deadline)
        if len(set(steps)) > 1:
            raise self._lost("applied_step", f"the ranks have applied different steps {steps}")
        return steps[0]

    def train(self, step: int, batch: BatchRef, version: int | None = None) -> TrainReport:
        """See Trainer."""
        return self._ask(f"train step {step}", lambda rank: rank.train(step, batch, version))

    def score(self, sequences: list[list[int]]) -> list[list[float]]:
        """See Trainer."""
        return self._ask("score", lambda rank: rank.score(sequences))

    def hidden_states(self, tokens: list[int]) -> "dict[str, Tensor]":
        """See Trainer."""
        return self._ask("hidden_states", lambda rank: rank.hidden_states(tokens))

    def export(self) -> "Manifest":
        """See Trainer."""
        return self._ask("export", lambda rank: rank.export())

    def keep(self, key: str) -> None:
        """See Trainer."""
        self._ask("keep", lambda rank: rank.keep(key))

    def content_hash(self) -> str:
        """See Trainer."""
        return self._ask("content_hash", lambda rank: rank.content_hash())

    def meeting_point(self) -> tuple[str, int]:
        """See Trainer."""
        return self._ask("meeting_point", lambda rank: rank.meeting_point())

    def buckets(self) -> "list[tuple[TensorSpec, ...]]":
        """See Trainer."""
        return self._ask("buckets", lambda rank: rank.buckets())

    def open_update_group(self, address: str, port: int, world_size: int, group_name: str) -> None:
        """See Trainer."""
        self._ask(
            "open_update_group",
            lambda rank: rank.open_update_group(address, port, world_size, group_name),
            self._run.config.publish.timeout_s,
        )

    def broadcast_bucket(self, number: int) -> None:
        """See Trainer."""
        timeout_s = self._run.config.publish.timeout_s
        self._ask("broadcast_bucket", lambda rank: rank.broadcast_bucket(number), timeout_s)

    def close_update_group(self) -> None:
        """See Trainer."""
        timeout_s = self._run.config.publish.timeout_s
        self._ask("close_update_group", lambda rank: rank.close_update_group(), timeout_s)

    def _ask(self, what: str, question: Callable[[Trainer], T], timeout_s: float | None = None) -> T:
        """Ask every rank at once, which all take part; rank 0's answer. `what` is for messages."""
        deadline = time.monotonic() + (timeout_s or self._config.step_timeout_s)
        first = self._actors[0]
        return self._gather(
            what,
            lambda actor: (actor.ask if actor is first else actor.obey).remote(question),
            deadline,
        )[0]

    def _gather(
        self, what: str, ask: Callable[[Any], Any], deadline: float, ranks: int | None = None
    ) -> list[Any]:
        """Ask the first `ranks` actors (all by default) at once; their answers in the order of the ranks."""
        references = [ask(actor) for actor in self._actors[:ranks]]
        waiting, refusal = list(references), None
        while waiting:
            done, waiting = ray.wait(waiting, timeout=max(deadline - time.monotonic(), 0))
            if not done:
                raise self._lost(
                    what, f"no answer of {len(waiting)} of {len(references)} ranks by the deadline"
                )
            try:
                ray.get(done)
            except RayTaskError as error:
                if not isinstance(error.cause, TrainerError | StoreError):
                    raise self._broken(what, error) from error
                refusal = error.cause
            except RayError as error:
                raise self._lost(what, f"a rank died: {error}") from None
        if refusal is not None:
            raise refusal
        return ray.get(references)

    def _broken(self, what: str, error: RayTaskError) -> Exception:
        """Kill the group after an error that left it without a common state; what to raise for it.

        torch's collectives raise RuntimeError when another rank is gone, which a new group can mend.
        """
        cause = error.cause if isinstance(error.cause, Exception) else error
        lost = self._lost(what, f"{type(cause).__name__}: {cause}")
        return lost if isinstance(cause, RuntimeError) else cause

    def _lost(self, what: str, reason: str) -> TrainerLost:
        """Kill the group, which has no common state any more, and say why."""
        with contextlib.suppress(TimeoutError):
            self.stop()
        return TrainerLost(f"trainer of {self._run.id} lost in {what}: {reason}; its ranks were killed")


def _applied_step(rank: Trainer) -> int:
    return rank.applied_step()


def _actor_name(rank: int) -> str:
    return f"trainer-{rank}"


def _existing(run: Run) -> list[Any]:
    actors = []
    for rank in range(run.config.trainer.world_size):
        with contextlib.suppress(ValueError):
            actors.append(ray.get_actor(_actor_name(rank), namespace=run.namespace))
    return actors


def _new_actor(run: Run, rank: int) -> Any:
    trainer = run.config.trainer
    options = ray.remote(TrainerActor).options(
        name=_actor_name(rank),
        namespace=run.namespace,
        lifetime="detached",
        num_cpus=0,
        num_gpus=1 if trainer.backend == "nccl" else 0,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(trainer.threads)}},
    )
    return options.remote(run, rank)
