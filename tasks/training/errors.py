"""What can go wrong in the trainer, and whether trying again can help."""

from configs.errors import RunFailure


class TrainerError(RunFailure):
    """The trainer cannot do what was asked; its state is unchanged and the same call fails again."""


class TrainerLost(TrainerError):
    """Ranks are missing, died or hung, and the group was killed: start it, restore it, and try again."""


class StepRefused(TrainerError):
    """A gate stopped the step before its optimizer step; weights and optimizer are unchanged."""


class StepOutOfOrder(TrainerError):
    """A step was asked for that does not follow the applied one."""


class CheckpointUnusable(TrainerError):
    """A trainer checkpoint is incomplete or was written for another parallel layout."""


class ModelUnsupported(TrainerError):
    """The trainer has no Megatron layout for this model."""


class WeightsMismatch(TrainerError):
    """A checkpoint's tensors are not those of the model that its config describes."""
