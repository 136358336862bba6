"""Which experts tokens went to, taken from a mixture-of-experts model as it runs."""

import re
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

_EXPERTS = re.compile(r"\.layers\.(\d+)\..*\bexperts$")


class RouterTap:
    """Remembers the routers' choices of the newest forward pass.

    Shape letters: B rows, T positions, L layers, E experts a token.
    """

    def __init__(self, experts: dict[int, nn.Module], layers: int, chosen: int) -> None:
        """`experts` are the modules by their layer; transformers calls them with the choices [B * T, E]."""
        self._choices: dict[int, Tensor] = {}
        self._layers = layers
        self._chosen = chosen
        for layer, module in experts.items():
            module.register_forward_pre_hook(self._hook(layer))

    @classmethod
    def on(cls, model: PreTrainedModel) -> "RouterTap | None":
        """Tap a model; None when it has no experts."""
        matches = ((_EXPERTS.search(name), module) for name, module in model.named_modules())
        experts = {int(match[1]): module for match, module in matches if match}
        if not experts:
            return None
        config = model.config.get_text_config()
        return cls(experts, config.num_hidden_layers, config.num_experts_per_tok)

    def empty(self, rows: int, columns: int) -> Tensor:
        """int32 [rows, columns, L, E] of zeros."""
        return torch.zeros(rows, columns, self._layers, self._chosen, dtype=torch.int32)

    def newest(self, rows: int, columns: int) -> Tensor:
        """int32 [B, T, L, E] of the newest pass, in the router's order; zeros in layers without experts."""
        choices_BTLE = self.empty(rows, columns)
        for layer, choice in self._choices.items():
            choices_BTLE[:, :, layer] = choice.view(rows, columns, self._chosen).to("cpu", torch.int32)
        return choices_BTLE

    def _hook(self, layer: int) -> Any:
        def remember(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            self._choices[layer] = arguments[1]

        return remember
