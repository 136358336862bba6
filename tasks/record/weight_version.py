"""The name of a set of weights."""

from tasks.record.stored import Record


class WeightVersion(Record):
    """A weight version: staging gives it, publish brings it to the engines, the step's commit keeps it."""

    number: int
    """Only grows over the life of a run; the same number never names other weights."""
    parent: int | None
    """Version that training started from; None for the initial weights."""
    step: int
    """The step that made it; 0 for the initial weights."""
    hash: str
    """Content hash, as every engine reports it."""
    bytes: int
    """Size of all tensors."""
    format: str
    """Number format of the linear layers, such as `float32` or `fp8_block`."""
