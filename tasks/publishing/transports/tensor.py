"""As tensors: the publisher reads the exported folder and sends it to every engine."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from configs.transport import TensorTransport
from infra.engines.tensors import buckets, pack
from infra.weights_folder import WeightsFolder
from tasks.fleet.engines import Engine, Fleet
from tasks.publishing.transports.base import Transfer, Transport
from tasks.publishing.transports.session import update_session
from tasks.publishing.transports.staged import StagedVersion
from tasks.record.weight_version import WeightVersion


@dataclass(frozen=True)
class Tensor(Transport):
    """This process sends every engine the tensors."""

    settings: TensorTransport

    def prepare(self, fleet: Fleet, weights: WeightVersion, held: bool) -> Transfer:
        """See Transport."""
        return Sending(fleet.run.config.publish.bucket_bytes)


@dataclass(frozen=True)
class Sending:
    """The exported folder, bucket by bucket, each to every engine at once.

    One bucket is in memory at a time, in the forms that it takes on its way: bytes, text, and a request for
    each engine.
    """

    bucket_bytes: float
    name: str = "tensor"

    def transfer(self, engines: list[Engine], staged: StagedVersion) -> int:
        """See Transfer."""
        sent = 0
        with (
            WeightsFolder(staged.local()) as weights,
            ThreadPoolExecutor(max_workers=len(engines)) as pool,
            update_session(engines),
        ):
            tensors = ((name, weights.whole(name)) for name in sorted(weights.names))
            for bucket in map(pack, buckets(tensors, self.bucket_bytes)):
                sending = [pool.submit(engine.client.update_from_bucket, bucket) for engine in engines]
                for call in sending:
                    call.result()
                sent += len(bucket.content) * len(engines)
        return sent
