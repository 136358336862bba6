"""What a trainer does: one protocol for its group in the driver, for each rank, and for what tests use."""

from typing import TYPE_CHECKING, Protocol

from tasks.record.samples import BatchRef
from tasks.training.report import TrainReport

if TYPE_CHECKING:  # the driver does without torch's import until it needs it
    from torch import Tensor

    from tasks.model.bridge.buckets import TensorSpec
    from tasks.record.manifest import Manifest


class Trainer(Protocol):
    """The weights in training, their optimizer and the step they have seen.

    Keys are of the run's store: whoever has the bytes reads and writes there, on a machine of its own. All
    ranks are called alike, in one order, and answer alike. Calls raise TrainerError when the trainer refuses,
    its state unchanged; a group raises TrainerLost when it is gone.
    """

    def load(self) -> None:
        """Start afresh from the run's model: its weights, a new optimizer, step 0.

        Raises ModelUnsupported or WeightsMismatch.
        """

    def restore(self, key: str) -> None:
        """Go on exactly where the checkpoint was saved; KeyMissingError or CheckpointUnusable."""

    def save(self, key: str) -> None:
        """Store a checkpoint, whole or not at all and in place of an earlier one."""

    def applied_step(self) -> int:
        """The last step whose batch the weights have seen; 0 for the initial weights."""

    def train(self, step: int, batch: BatchRef, version: int | None = None) -> TrainReport:
        """Apply a graded batch of the run's store as `step`; a step that is applied gives its report again.

        `version` is the weight version that the trainer holds, step - 1 when absent. Raises StepOutOfOrder or
        StepRefused.
        """

    def score(self, sequences: list[list[int]]) -> list[list[float]]:
        """Log-probabilities of tokens[1:] of each sequence at temperature 1, nats, computed in fp32."""

    def hidden_states(self, tokens: list[int]) -> "dict[str, Tensor]":
        """Outputs [T, H] of embedding, decoder layers and last norm by their names in a checkpoint, fp32."""

    def export(self) -> "Manifest":
        """Write the weights as a Hugging Face folder on the machine of rank 0, in the engines' format.

        What lies beside the weights is the model's. The folder waits for `keep`, or the next export.
        """

    def keep(self, key: str) -> None:
        """Store what was exported last, whole or not at all and in place of an earlier one."""

    def content_hash(self) -> str:
        """Content hash of the weights as `export` would write them."""

    def meeting_point(self) -> tuple[str, int]:
        """Address of rank 0's node and a free port on it, where an update group can meet."""

    def buckets(self) -> "list[tuple[TensorSpec, ...]]":
        """The tensors of each broadcast bucket as engines hold them, at most publish.bucket_mb MiB each."""

    def open_update_group(self, address: str, port: int, world_size: int, group_name: str) -> None:
        """Meet the engines at address:port as rank 0; blocks until they joined, so call them meanwhile."""

    def broadcast_bucket(self, number: int) -> None:
        """Send the tensors of a bucket in order; blocks until the engines have received them."""

    def close_update_group(self) -> None:
        """Leave the update group; fine when none is open."""
