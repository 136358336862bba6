"""Listening to what modules put out in a forward pass."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn


@contextmanager
def tapped(modules: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """Within the block, the last output of each module by its name here; of a tuple its first tensor."""
    outputs: dict[str, Tensor] = {}

    def listen(name: str, module: nn.Module) -> None:
        def take(_module: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
            outputs[name] = output if isinstance(output, Tensor) else output[0]

        hooks.callback(module.register_forward_hook(take).remove)

    with ExitStack() as hooks:
        for name, module in modules.items():
            listen(name, module)
        yield outputs
