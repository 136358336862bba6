"""The platform: PyTorch's own operators for everything."""

from typing import Any

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

from overnight_sglang_cpu.murmur import murmur_hash32

_ATTENTION = "torch_native"


class CpuPlatform(CpuDeviceMixin, SRTPlatform):
    """A CPU without AMX: `native` implementations, torch_native attention, nothing compiled."""

    _enum = PlatformEnum.OOT
    capabilities = PlatformCapabilities()

    def apply_server_args_defaults(self, server_args: Any) -> None:
        """The only kernels that are here; no spinning while idle, since the trainer wants the cores too; and
        samples may follow from seeds, since the attention takes each request by itself."""
        from sglang.srt.arg_groups import choices

        choices.add_deterministic_attention_backend_choices([_ATTENTION])
        server_args.attention_backend = _ATTENTION
        server_args.disable_overlap_schedule = True
        server_args.sleep_on_idle = True

    def get_default_attention_backend(self) -> str:
        """SGLang's name of the attention that runs on PyTorch alone."""
        return _ATTENTION

    def get_dispatch_key_name(self) -> str:
        """Which implementation of SGLang's operators to take."""
        return "native"

    def get_torch_profiler_activity_str(self) -> str:
        """What the profiler records."""
        return "CPU"

    def get_torch_profiler_activity(self) -> Any:
        """What the profiler records."""
        return torch.profiler.ProfilerActivity.CPU

    def init_backend(self) -> None:
        """Replace what SGLang has for accelerators, or in its CPU kernels, alone.

        Routed experts are kept in plain memory instead of pinned; sampling seeds are hashed by PyTorch; and
        there are no batch-invariant kernels to switch to.
        """
        from sglang.srt import batch_invariant_ops
        from sglang.srt.layers import sampler
        from sglang.srt.mem_cache.pool_host import common

        common.ALLOC_MEMORY_FUNCS["cpu"] = _allocate
        sampler.murmur_hash32 = murmur_hash32
        batch_invariant_ops.enable_batch_invariant_mode = lambda: None


def _allocate(dims: tuple[int, ...], dtype: torch.dtype, **_: Any) -> torch.Tensor:
    return torch.empty(dims, dtype=dtype)
