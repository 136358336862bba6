"""Mixtures of experts: the router of the supported families, and experts that a rank holds whole."""

from functools import partial
from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.moe.shared_experts import SharedExpertMLP
from megatron.core.transformer.spec_utils import ModuleSpec
from torch import Tensor, nn

from tasks.model.architecture import ExpertGroups, Experts

MLP_LAYERS = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)


class GroupChoice:
    """Chooses experts from the best groups, as ExpertGroups says.

    Megatron scores a group by its topk // group_topk best experts, which suits DeepSeek-V3 and not V2. Its
    routers ask an object with this method, which is made for replays, where they have one.
    """

    def __init__(self, groups: ExpertGroups) -> None:
        self._groups = groups

    def get_replay_topk(self, scores_NE: Tensor, topk: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """The `topk` best scores and their experts, each of shape [N, topk]."""
        grouped_NGE = scores_NE.unflatten(1, (self._groups.count, -1))
        group_scores_NG = grouped_NGE.topk(self._groups.scored, dim=2).values.sum(2)
        best = group_scores_NG.topk(self._groups.per_token, dim=1).indices
        chosen_NG = torch.zeros_like(group_scores_NG, dtype=torch.bool).scatter(1, best, True)
        best_NK = grouped_NGE.masked_fill(~chosen_NG[:, :, None], -torch.inf).flatten(1).topk(topk, dim=1)
        return best_NK.values, best_NK.indices


class Router(TopKRouter):
    """Megatron's router with the family's choice of groups; its bias stays as the model's folder has it."""

    def __init__(self, groups: ExpertGroups | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if groups is not None:
            self.router_replay = GroupChoice(groups)

    def _apply_expert_bias(self, *_: Any, **__: Any) -> None:
        """Count no tokens, which only an update of the bias would need."""


def experts_spec(part: Experts) -> ModuleSpec:
    """What a layer's experts are built of, router and shared MLP included."""
    return ModuleSpec(
        module=MoELayer,
        submodules=MoESubmodules(
            router=partial(Router, part.groups),
            experts=ModuleSpec(module=SequentialMLP, submodules=MLP_LAYERS),
            shared_experts=ModuleSpec(module=SharedExpertMLP, submodules=MLP_LAYERS),
        ),
    )


def expert_fields(part: Experts, expert_parallel: int) -> dict[str, Any]:
    """Megatron's configuration of a mixture of experts, without auxiliary losses."""
    return {
        "num_moe_experts": part.count,
        "moe_router_topk": part.per_token,
        "moe_ffn_hidden_size": part.ffn_size,
        "moe_shared_expert_intermediate_size": part.shared_ffn_size,
        "moe_router_score_function": part.score,
        "moe_router_pre_softmax": not part.renormalised,
        "moe_router_topk_scaling_factor": part.scaling,
        "moe_router_enable_expert_bias": part.score_bias,
        "moe_router_bias_update_rate": 0.0,
        "moe_router_dtype": "fp32",
        "moe_router_load_balancing_type": "none",
        "moe_token_dispatcher_type": "alltoall",  # takes batches of different sizes from different ranks
        "expert_model_parallel_size": expert_parallel,
        "expert_tensor_parallel_size": 1,
    }


def reduce_over_expert_ranks(model: nn.Module) -> None:
    """Have gradients of experts summed over the ranks that hold the same ones; call it before DDP.

    Megatron does so only with expert parallelism, and takes experts for split by tensor parallelism without.
    """
    for name, parameter in model.named_parameters():
        if ".local_experts." in name:
            parameter.allreduce = False  # type: ignore[attr-defined]
