"""Meeting in a process group."""

import multiprocessing
import time

import pytest
import torch
import torch.distributed as dist

from infra.process import free_port
from infra.process_group import join_group, leave_group


def _member(port: int, rank: int, name: str, received: "multiprocessing.Queue[list[float]]") -> None:
    group = join_group("127.0.0.1", port, 2, rank, name, "gloo", timeout_s=30)
    tensor = torch.tensor([1.0, 2.0]) if rank == 0 else torch.zeros(2)
    dist.broadcast(tensor, src=0, group=group)
    received.put(tensor.tolist())
    leave_group(group)


@pytest.mark.slow
def test_rank_0_broadcasts_to_a_group_beside_none_or_another() -> None:
    context = multiprocessing.get_context("spawn")
    received = context.Queue()
    port = free_port()
    other = context.Process(target=_member, args=(port, 1, "weights", received))
    other.start()
    _member(port, 0, "weights", received)
    other.join(timeout=30)
    assert [received.get(timeout=5), received.get(timeout=5)] == [[1.0, 2.0]] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_meeting_that_nobody_comes_to_ends_at_the_deadline(rank: int) -> None:
    begun = time.monotonic()
    with pytest.raises(RuntimeError):
        join_group("127.0.0.1", free_port(), 2, rank, "lonely", "gloo", timeout_s=1)
    assert time.monotonic() - begun < 10
