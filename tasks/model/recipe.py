"""The number format in which a run's weights are published."""

import torch

from configs.run import RunConfig
from infra.quantisation.recipe import QuantisationRecipe


def publish_recipe(config: RunConfig) -> QuantisationRecipe:
    """Linear layers in publish.format, where one is set, and the rest in engine.dtype.

    Models that declare a format of their own are not trained, so the choice is the run's.
    """
    return QuantisationRecipe.of({}, config.publish.format, getattr(torch, config.engine.dtype))
