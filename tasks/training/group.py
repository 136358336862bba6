"""The driver's side of the trainer: its ranks are named Ray actors of the run."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError

from infra.process import wait_until
from infra.weights_folder import WeightsMismatch
from tasks.model.errors import TrainerError
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.training.actor import TrainerActor
from tasks.training.errors import StepRefused, TrainerLost
from tasks.training.report import TrainReport

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.model.bridge.buckets import TensorSpec
    from tasks.record.manifest import Manifest

__all__ = ["StepRefused", "TrainerError", "TrainerGroup", "TrainerLost"]

_STOP_TIMEOUT_S = 30


class TrainerGroup:
    """All ranks as one. Every call has a deadline; a rank that dies or hangs takes the group with it.

    Calls raise TrainerLost when the group is gone (it was killed; start and restore it), and another
    TrainerError or WeightsMismatch when the trainer refuses, its state unchanged.
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
        deadline = time.monotonic() + self._config.step_timeout_s
        try:
            self._gather("applied_step", lambda actor: actor.call.remote("applied_step"), deadline)
        except TrainerError:
            return False
        return True

    def stop(self) -> None:
        """Kill every rank and wait until they are gone; fine when they already are."""
        for actor in _existing(self._run):
            ray.kill(actor)
        wait_until(lambda: not _existing(self._run), _STOP_TIMEOUT_S, f"the end of {self._run.id}'s trainer")

    def load(self, model_path: Path) -> None:
        """Start afresh from a Hugging Face folder: its weights, a new optimizer, step 0."""
        self._call("load", model_path, timeout_s=self._config.start_timeout_s)

    def restore(self, folder: Path) -> None:
        """Go on exactly where the checkpoint was saved."""
        self._call("restore", folder, timeout_s=self._config.start_timeout_s)

    def save(self, folder: Path) -> None:
        """Write a checkpoint folder; it appears whole or not at all."""
        self._call("save", folder)

    def applied_step(self) -> int:
        """The last step that the weights have seen; TrainerLost when the ranks disagree."""
        steps = self._call("applied_step")
        if len(set(steps)) > 1:
            raise self._lost("applied_step", f"the ranks have applied different steps {steps}")
        return steps[0]

    def train(self, step: int, batch: BatchRef, version: int | None = None) -> TrainReport:
        """Apply a graded batch of the run's store as `step`; a step that is applied gives its report again.

        `version` is the weight version that the trainer holds, step - 1 when absent.
        """
        deadline = time.monotonic() + self._config.step_timeout_s
        return self._gather(
            f"train step {step}", lambda actor: actor.train.remote(step, batch, version), deadline
        )[0]

    def score(self, sequences: list[list[int]]) -> list[list[float]]:
        """Log-probabilities of tokens[1:] of each sequence at temperature 1, nats."""
        return self._call("score", sequences)[0]

    def hidden_states(self, tokens: list[int]) -> "dict[str, Tensor]":
        """Outputs [T, H] of embedding, decoder layers and last norm by Hugging Face's names, fp32."""
        return self._call("hidden_states", tokens)[0]

    def export(self, folder: Path, model_path: Path) -> "Manifest":
        """Write the weights as a Hugging Face folder, with the other files of `model_path`."""
        return self._call("export", folder, model_path)[0]

    def content_hash(self) -> str:
        """Content hash of the weights as `export` would write them."""
        return self._call("content_hash")[0]

    def meeting_point(self) -> tuple[str, int]:
        """Address of rank 0's node and a free port on it, where an update group can meet."""
        deadline = time.monotonic() + self._config.step_timeout_s
        return self._gather("meeting_point", lambda actor: actor.meeting_point.remote(), deadline, ranks=1)[0]

    def buckets(self) -> "list[tuple[TensorSpec, ...]]":
        """The tensors of each broadcast bucket, in order."""
        return self._call("buckets")[0]

    def open_update_group(self, address: str, port: int, world_size: int, group_name: str) -> None:
        """Meet the engines at address:port as rank 0; blocks until they joined, so call them meanwhile."""
        timeout_s = self._run.config.publish.timeout_s
        self._call("open_update_group", address, port, world_size, group_name, timeout_s=timeout_s)

    def broadcast_bucket(self, number: int) -> None:
        """Send the tensors of a bucket; blocks until the engines have received them."""
        self._call("broadcast_bucket", number, timeout_s=self._run.config.publish.timeout_s)

    def close_update_group(self) -> None:
        """Leave the update group; fine when none is open."""
        self._call("close_update_group", timeout_s=self._run.config.publish.timeout_s)

    def _call(self, method: str, *arguments: Any, timeout_s: float | None = None) -> list[Any]:
        deadline = time.monotonic() + (timeout_s or self._config.step_timeout_s)
        return self._gather(method, lambda actor: actor.call.remote(method, *arguments), deadline)

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
                if not isinstance(error.cause, TrainerError | WeightsMismatch):
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
