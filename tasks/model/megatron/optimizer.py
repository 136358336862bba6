"""Adam over the Megatron model, with the norm known before the step is taken."""

from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

from configs.training import TrainerConfig


class Optimizer:
    """Megatron's optimizer, taken apart so that a gate can stand between gradient norm and step."""

    def __init__(self, model: DistributedDataParallel, config: TrainerConfig) -> None:
        self._model = model
        self._config = config
        self._megatron = get_megatron_optimizer(
            OptimizerConfig(
                optimizer="adam",
                lr=config.learning_rate,
                adam_beta1=config.adam_betas[0],
                adam_beta2=config.adam_betas[1],
                adam_eps=config.adam_eps,
                weight_decay=config.weight_decay,
                clip_grad=0.0,  # clipped in step()
                bf16=config.dtype == "bfloat16",
                params_dtype=getattr(torch, config.dtype),
                use_distributed_optimizer=False,
            ),
            [model],
            use_gloo_process_groups=False,
        )

    def learning_rate(self, step: int) -> float:
        """Linear warmup over trainer.warmup_steps run steps (counted from 1), then constant."""
        return self._config.learning_rate * min(1.0, step / max(self._config.warmup_steps, 1))

    def zero_grad(self) -> None:
        """Forget all gradients."""
        self._model.zero_grad_buffer()
        self._megatron.zero_grad()

    def grad_norm(self) -> float:
        """L2 norm of the whole model's accumulated gradient, before clipping; the same on every rank."""
        self._megatron.prepare_grads()
        return float(self._megatron.get_grad_norm())

    def step(self, learning_rate: float, grad_norm: float) -> None:
        """Clip the gradient, whose norm is `grad_norm`, to trainer.grad_clip and update the weights."""
        scale = self._config.grad_clip / (grad_norm + 1e-6)
        if scale < 1:
            self._model.scale_gradients(scale)
            self._megatron.prepare_grads()
        for group in self._megatron.param_groups:
            group["lr"] = learning_rate
        self._megatron.step_with_ready_grads()

    def state_dict(self) -> dict[str, Any]:
        """Moments and step counts of this rank's parameters."""
        return self._megatron.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what state_dict returned on a rank of the same layout."""
        self._megatron.load_state_dict(state)
