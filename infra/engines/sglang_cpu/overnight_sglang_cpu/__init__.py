"""Makes SGLang serve on a CPU that has none of the instructions its CPU kernels want.

SGLang finds `activate` by its entry point `sglang.srt.platforms` in each of its processes, before anything
of torchvision or of the platform is imported.
"""

import torch

_torchvision: torch.library.Library | None = None


def activate() -> str:
    """Prepare the process, and name the platform class."""
    _declare_torchvision_operators()
    return "overnight_sglang_cpu.platform:CpuPlatform"


def _declare_torchvision_operators() -> None:
    """PyPI's torchvision is built for CUDA; beside a CPU torch its Python part asks for these schemas."""
    global _torchvision
    if _torchvision is None and not hasattr(torch.ops.torchvision, "nms"):
        _torchvision = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _torchvision.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
