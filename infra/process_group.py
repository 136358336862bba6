"""A process group beside the default one: the trainer at rank 0, engines after it."""

import ipaddress
import os
from collections.abc import Iterable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous


def join_group(
    address: str, port: int, world_size: int, rank: int, group_name: str, backend: str, timeout_s: float
) -> dist.ProcessGroup:
    """Join a group that meets at tcp://address:port, which rank 0 serves; blocks until all have joined.

    `timeout_s` is the deadline of the meeting and of each collective. Use the group with `broadcast` and end
    it with `leave_group`. Raises RuntimeError (DistStoreError among them) when the others do not come in
    time. Interoperates with SGLang's init_custom_process_group, which builds a group in the same way and
    under the same store keys.
    """
    timeout = timedelta(seconds=timeout_s)
    _keep_loopback_local(address)
    store, rank, world_size = next(
        rendezvous(f"tcp://{address}:{port}", rank=rank, world_size=world_size, timeout=timeout)
    )
    store.set_timeout(timeout)
    # A group without the default one's ranks can only be made by the helper beneath init_process_group.
    group, _ = c10d._new_process_group_helper(
        world_size,
        rank,
        [],
        dist.Backend(backend),
        PrefixStore(group_name, store),
        group_name=c10d.GroupName(group_name),
        timeout=timeout,
    )
    c10d._world.pg_group_ranks[group] = {member: member for member in range(world_size)}
    return group


def broadcast(tensors: Iterable[torch.Tensor], group: dist.ProcessGroup) -> None:
    """Send contiguous tensors in order from rank 0, or receive them there; blocks until all have arrived.

    float8, which gloo does not know, travels as bytes.
    """
    under_way = []
    for tensor in tensors:
        as_bytes = tensor.is_floating_point() and tensor.itemsize == 1
        sent = tensor.view(torch.uint8) if as_bytes else tensor
        under_way.append(dist.broadcast(sent, src=0, group=group, async_op=True))
    failed: RuntimeError | None = None
    for work in under_way:  # all of them: one that is left alone may still write into its tensor
        try:
            work.wait()
        except RuntimeError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def leave_group(group: dist.ProcessGroup) -> None:
    """End this process's membership; the others' collectives on the group fail from now on."""
    dist.destroy_process_group(group)


def _keep_loopback_local(address: str) -> None:
    """Gloo listens on the interface of the host's name; a meeting on the loopback address stays there."""
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = address == "localhost"
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
