"""Process groups over which a trainer broadcasts weights."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

import torch
import torch.distributed as dist

from configs.errors import RunFailure
from infra.engines.protocol import InitUpdateGroupRequest, UpdateFromGroupRequest
from infra.process_group import broadcast, join_group, leave_group
from infra.quantisation.recipe import TensorForm

TIMEOUT_S = 120.0
"""Deadline of the meeting, and of each broadcast."""
Place = Callable[[str, TensorForm], torch.Tensor]


class GroupError(RunFailure):
    """A process group call cannot be served."""


class UpdateGroups:
    """The groups that this engine is a member of, by name."""

    def __init__(self) -> None:
        self._groups: dict[str, dist.ProcessGroup] = {}

    def join(self, request: InitUpdateGroupRequest) -> "Future[None]":
        """Meet the others, on a thread of its own since that waits for them."""
        return _on_thread(lambda: self._join(request))

    def leave(self, name: str) -> None:
        """End a membership; GroupError for an unknown name."""
        leave_group(self._member(name))
        del self._groups[name]

    def receive(self, request: UpdateFromGroupRequest, place: Place) -> dict[str, torch.Tensor]:
        """Take all the tensors of an update from rank 0, fit or not, so that the group stays in step.

        `place` gives the memory for a tensor.
        """
        if not len(request.names) == len(request.dtypes) == len(request.shapes):
            raise GroupError("names, dtypes and shapes must have the same length")
        group = self._member(request.group_name)
        tensors = {
            name: place(name, TensorForm(_dtype(dtype), tuple(shape)))
            for name, dtype, shape in zip(request.names, request.dtypes, request.shapes, strict=True)
        }
        try:
            broadcast(tensors.values(), group)
        except RuntimeError as error:
            raise GroupError(f"broadcast over {request.group_name} failed: {error}") from error
        return tensors

    def _join(self, request: InitUpdateGroupRequest) -> None:
        if request.group_name in self._groups:
            raise GroupError(f"already in group {request.group_name}: destroy it first")
        try:
            self._groups[request.group_name] = join_group(
                request.master_address,
                request.master_port,
                request.world_size,
                request.rank_offset,
                request.group_name,
                request.backend,
                TIMEOUT_S,
            )
        except (RuntimeError, ValueError) as error:
            raise GroupError(f"cannot join group {request.group_name}: {error}") from error

    def _member(self, name: str) -> dist.ProcessGroup:
        if name not in self._groups:
            raise GroupError(f"not in group {name}: call init_weights_update_group first")
        return self._groups[name]


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise GroupError(f"{name} is not a dtype: write it as float32")
    return dtype


def _on_thread(action: Callable[[], None]) -> "Future[None]":
    """Unlike a pool's, this thread does not hold up the exit of the process."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            action()
            future.set_result(None)
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
