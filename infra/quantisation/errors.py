"""What goes wrong between a weight and its served form."""

from configs.errors import RunFailure


class QuantisationError(RunFailure):
    """A tensor cannot be put into its format, or is not in the format that the recipe says."""
