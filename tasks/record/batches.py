"""Storing a step's batch once, and reading back the very one that was meant."""

from configs.errors import RunFailure
from infra.store.base import KeyExistsError, Store
from tasks.record.samples import BatchRef, RolloutBatch, batch_hash


def store_batch(store: Store, key: str, batch: RolloutBatch) -> BatchRef:
    """Store a batch create-only; when another try was first, its batch is the one that counts."""
    data = batch.to_parquet()
    try:
        store.create(key, data)
    except KeyExistsError:
        data = store.read(key)
    return BatchRef(batch.step, key, batch_hash(data))


class BatchUnreadable(RunFailure):
    """A stored batch is not what was stored."""


def read_batch(store: Store, ref: BatchRef, groups: int | None = None) -> RolloutBatch:
    """The batch that a reference names, or its first groups only.

    BatchUnreadable when the store holds another, RecordUnreadable when a newer release wrote it.
    """
    data = store.read(ref.key)
    try:
        if batch_hash(data) == ref.sha256:
            return RolloutBatch.from_parquet(data, ref.key, groups)
    except ValueError:
        pass
    raise BatchUnreadable(
        f"{ref.key} was changed after it was stored: if step {ref.step} has no commit.json, "
        "remove its folder and resume to generate it again"
    )
