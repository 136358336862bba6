"""Which formats transformers reads (5.24, tried with each model family): others are not exported.

Engines of a run read every format; so this bounds exports alone.
"""

import re

from infra.quantisation.errors import QuantisationError
from infra.quantisation.formats import FP8_BLOCK, INT8_CHANNEL, MXFP4
from infra.quantisation.recipe import QuantisationRecipe
from infra.weights_folder import Shapes

_BLOCK = FP8_BLOCK.block[0]
_EXPERT = re.compile(r"\.experts\.\d+\.")


def check_readable(recipe: QuantisationRecipe, shapes: Shapes) -> None:
    """Raises QuantisationError, which names the format or the tensor, where transformers would not load it.

    `shapes` are those of the model's own tensors, before they are put into the format.
    """
    if recipe.format is MXFP4:
        raise QuantisationError("transformers does not read mxfp4 by itself: use mxfp8, or another format")
    for name, shape in shapes.items():
        recipe.forms(name, recipe.dtype, shape)
        if not recipe.quantises(name, len(shape)):
            continue
        if recipe.format is INT8_CHANNEL and _EXPERT.search(name):
            raise QuantisationError(
                f"{name}: transformers does not read experts in int8_channel: use fp8_channel"
            )
        if recipe.format is FP8_BLOCK and (odd := _odd_size(shape)):
            raise QuantisationError(
                f"{name}: transformers reads blocks of {_BLOCK} of it only where the size is a multiple of "
                f"{_BLOCK}, or less, and {odd} is not: use fp8_channel"
            )


def _odd_size(shape: tuple[int, ...]) -> int | None:
    """The first size that is cut into blocks unevenly: transformers divides it by the number of scales."""
    return next((size for size in shape if size > _BLOCK and size % _BLOCK), None)
