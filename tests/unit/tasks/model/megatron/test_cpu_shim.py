"""The CPU shim changes what megatron.core sees of torch, and nothing else."""

import pytest
import torch
from megatron.core.pipeline_parallel import schedules

from tasks.model.megatron import cpu

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the shim does nothing where a GPU is there"
)


def test_megatron_sees_the_cpu_as_its_device():
    cpu.install()
    assert schedules.torch.zeros(2, device="cuda").device.type == "cpu"
    assert schedules.torch.zeros(2, device=torch.device("cuda")).device.type == "cpu"
    assert schedules.torch.cuda.current_device() == torch.device("cpu")
    assert schedules.torch.Tensor is torch.Tensor


def test_torch_itself_is_untouched():
    cpu.install()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(2, device="cuda")
    assert torch.zeros.__module__ != cpu.__name__
    assert not torch.cuda.is_available()
