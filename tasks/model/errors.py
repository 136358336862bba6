"""What can be wrong with a model."""

from configs.errors import RunFailure


class TrainerError(RunFailure):
    """The trainer cannot do what was asked; its state is unchanged and the same call fails again."""


class ModelUnsupported(TrainerError):
    """The trainer has no Megatron layout for this model."""
