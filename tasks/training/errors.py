"""What can go wrong in the trainer, and whether trying again can help."""

from tasks.model.errors import TrainerError


class TrainerLost(TrainerError):
    """Ranks are missing, died or hung, and the group was killed: start it, restore it, and try again."""

    heals = True


class StepRefused(TrainerError):
    """A gate stopped the step before its optimizer step; weights and optimizer are unchanged."""


class StepOutOfOrder(TrainerError):
    """A step was asked for that does not follow the applied one."""


class CheckpointUnusable(TrainerError):
    """A trainer checkpoint is incomplete or was written for another parallel layout."""
