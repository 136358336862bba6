"""Let megatron.core run where there is no GPU. Nothing is changed where there is one.

megatron.core allocates with device="cuda" and asks torch.cuda.current_device() in a few modules. Those get a
view of torch in which both mean the CPU; torch itself and every other package stay as they are.
"""

import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

_PATCHED = (
    "megatron.core.distributed.param_and_grad_buffer",  # gradient buffers
    "megatron.core.models.common.embeddings.rotary_pos_embedding",  # rotary frequencies
    "megatron.core.optimizer.clip_grads",  # gradient norm
    "megatron.core.optimizer.optimizer",  # loss scale
    "megatron.core.pipeline_parallel.schedules",  # token count of a batch
    "megatron.core.utils",  # norms of many tensors
)
_FACTORIES = ("arange", "empty", "full", "ones", "tensor", "zeros")
_TRITON_KERNELS = "megatron.core.transformer.moe.ops.paged_stash"


def install() -> None:
    """Prepare megatron.core for this machine; call it before anything of megatron.core is imported."""
    if torch.cuda.is_available():
        return
    _stand_in_for_triton()
    view = _cpu_view()
    for name in _PATCHED:
        importlib.import_module(name).torch = view  # type: ignore[attr-defined]


class _View(types.ModuleType):
    """A module's attributes, some of them replaced."""

    def __init__(self, module: types.ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _cpu_view() -> _View:
    cuda = _View(torch.cuda, current_device=lambda: torch.device("cpu"))
    return _View(torch, cuda=cuda, **{name: _on_cpu(getattr(torch, name)) for name in _FACTORIES})


def _on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def create(*args: Any, **kwargs: Any) -> torch.Tensor:
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return factory(*args, **kwargs)

    return create


def _stand_in_for_triton() -> None:
    """From 0.18 on, importing megatron.core imports triton, in one module of mixture-of-experts kernels."""
    if importlib.util.find_spec("triton") is not None:
        return
    kernels = types.ModuleType(_TRITON_KERNELS)
    kernels.__dict__.update(GLOBAL_BLOCK_SIZE=1024, paged_stash_copy_kernel=None, paged_stash_pop_kernel=None)
    sys.modules[_TRITON_KERNELS] = kernels
