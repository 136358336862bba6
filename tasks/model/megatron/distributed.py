"""Joining the ranks of the trainer."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

from configs.training import TrainerConfig


def join(config: TrainerConfig, rank: int, address: str, port: int) -> torch.device:
    """Initialise torch.distributed and Megatron's parallel groups for this process; returns its device.

    Rank 0 listens on address:port; all world_size ranks call this within trainer.start_timeout_s.
    Collectives that take longer than trainer.step_timeout_s fail.
    """
    torch.set_num_threads(config.threads)
    if address.startswith("127."):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        config.backend,
        init_method=f"tcp://{address}:{port}",
        world_size=config.world_size,
        rank=rank,
        timeout=timedelta(seconds=config.step_timeout_s),
    )
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=config.tensor_parallel,
        expert_model_parallel_size=config.expert_parallel,
        expert_tensor_parallel_size=1,
        create_gloo_process_groups=False,
    )
    return _device(config)


def leave() -> None:
    """Undo join, so that the process can join again."""
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def _device(config: TrainerConfig) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    model_parallel_cuda_manual_seed(0)  # sequence parallelism wants the generators, also without dropout
    return torch.device("cuda")
