"""Let megatron.core run where there is no GPU or no TransformerEngine. Nothing is changed where both are.

megatron.core allocates with device="cuda", asks torch.cuda.current_device() and orders streams in a few
modules. Those get a view of torch in which all of it means the CPU; torch itself and every other package stay
as they are.
"""

import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

_PATCHED = (
    "megatron.core.distributed.param_and_grad_buffer",  # gradient buffers
    "megatron.core.models.common.embeddings.rotary_pos_embedding",  # rotary frequencies
    "megatron.core.models.common.embeddings.yarn_rotary_pos_embedding",
    "megatron.core.optimizer.clip_grads",  # gradient norm
    "megatron.core.optimizer.optimizer",  # loss scale
    "megatron.core.pipeline_parallel.schedules",  # token count of a batch
    "megatron.core.tensor_parallel.layers",  # gradients of a split sequence
    "megatron.core.tensor_parallel.mappings",  # results of collectives
    "megatron.core.transformer.moe.router",  # expert biases
    "megatron.core.transformer.moe.token_dispatcher",  # copies to the host on a stream of their own
    "megatron.core.utils",  # norms of many tensors
)
_FACTORIES = ("arange", "empty", "full", "ones", "tensor", "zeros")
_TRITON_KERNELS = "megatron.core.transformer.moe.ops.paged_stash"


def install() -> None:
    """Prepare megatron.core for this machine; call it before anything of megatron.core is imported."""
    _stand_in_for_triton()
    _without_transformer_engine()
    if torch.cuda.is_available():
        return
    view = _cpu_view()
    for name in _PATCHED:
        importlib.import_module(name).torch = view  # type: ignore[attr-defined]
    _stand_in_for_cuda_generators()
    _split_sizes_as_numbers()


class _View(types.ModuleType):
    """A module's attributes, some of them replaced."""

    def __init__(self, module: types.ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Stream:
    """A stream, or an event on it, where everything is done in order."""

    def wait_stream(self, _: "_Stream") -> None:
        """Nothing to wait for."""

    def record_event(self) -> "_Stream":
        """The event of everything before being done."""
        return self

    def synchronize(self) -> None:
        """Nothing to wait for."""


def _cpu_view() -> _View:
    cuda = _View(
        torch.cuda,
        current_device=lambda: torch.device("cpu"),
        Stream=_Stream,
        current_stream=_Stream,
        stream=lambda _: nullcontext(),
    )
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


def _without_transformer_engine() -> None:
    """Two modules of 0.16 ask for its names, or for classes that are None, where it is absent."""
    if importlib.util.find_spec("transformer_engine") is not None:
        return
    importlib.import_module("megatron.core.transformer.moe.moe_utils").__dict__.setdefault("te_general_gemm")
    importlib.import_module("megatron.core.transformer.multi_latent_attention").__dict__["HAVE_TE"] = False


def _stand_in_for_cuda_generators() -> None:
    """Sequence parallelism draws from generators of the GPU's; without dropout nothing is drawn."""
    random = importlib.import_module("megatron.core.tensor_parallel.random")
    random.CudaRNGStatesTracker.fork = lambda *_, **__: nullcontext()


def _split_sizes_as_numbers() -> None:
    """The token dispatcher turns sizes into numpy arrays when it copies them to the host, and only then."""
    dispatcher = importlib.import_module("megatron.core.transformer.moe.token_dispatcher")

    def on_host(value: Any, as_numpy: bool = False, **_: Any) -> Any:
        return value.numpy() if as_numpy and isinstance(value, torch.Tensor) else value

    dispatcher.maybe_move_tensor_to_cpu = on_host  # type: ignore[attr-defined]
