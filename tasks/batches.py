"""Storing a step's batch once, and reading back the very one that was meant."""

from infra.store.base import KeyExistsError, Store
from tasks.samples import BatchRef, RolloutBatch, batch_hash


def store_batch(store: Store, key: str, batch: RolloutBatch) -> BatchRef:
    """Store a batch create-only; when another try was first, its batch is the one that counts."""
    data = batch.to_parquet()
    try:
        store.create(key, data)
    except KeyExistsError:
        data = store.read(key)
    return BatchRef(batch.step, key, batch_hash(data))


def read_batch(store: Store, ref: BatchRef) -> RolloutBatch:
    """The batch that a reference names; ValueError when the stored bytes are not the ones it was made for."""
    data = store.read(ref.key)
    if batch_hash(data) != ref.sha256:
        raise ValueError(
            f"{ref.key} was changed after it was stored: remove the folder of step {ref.step} and resume"
        )
    return RolloutBatch.from_parquet(data)
