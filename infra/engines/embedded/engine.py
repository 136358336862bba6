"""What the endpoints act on."""

from infra.engines.embedded.groups import UpdateGroups
from infra.engines.embedded.model import ServedModel
from infra.engines.embedded.worker import Worker


class Engine:
    """A served model, the thread that owns it, and the state of weight updates."""

    def __init__(self, model: ServedModel, batch_size: int) -> None:
        self.model = model
        self.batch_size = batch_size
        self.worker = Worker(model, batch_size)
        self.groups = UpdateGroups()
        self.updating = False
        """Whether a weight-update session is open."""
