"""What a full publish costs, by each transport: a model of SmolLM2-135M's shapes to two embedded engines.

A transport cannot be faster than the copies that it needs. Per byte that arrives at an engine these are,
where one that serves both engines counts half, and one of base64 text 4/3:

- disk: out of the page cache into the served parameter, 1.
- tensor: file to bucket, bucket to pickle and pickle to text, once for both engines, (1 + 1 + 4/3) / 2; for
  each engine text to request, request to the kernel, from there to the server, and request to text, 4 * 4/3;
  text to pickle, pickle to tensor and tensor to parameter, 3. SGLang's protocol, tensors in JSON, asks for
  these 10.
- process_group: trainer to the kernel, and from there to the parameter, 2.

The bar is half of this machine's memory-copy bandwidth, all cores at it, divided by the copies.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import torch
from rich.table import Table

from benchmarks.figures import REPEATS
from benchmarks.memory import peak_memory
from benchmarks.smollm2 import LoneTrainer, benchmark_config, save_random_model
from configs.engine import EmbeddedEngine
from configs.run import RunConfig
from infra.engines.client import EngineClient
from infra.engines.launch import launch
from infra.process import LOOPBACK, free_port, spawn, stop_tree, wait_until
from tasks.fleet.engines import Engine
from tasks.probe.probe import Probe
from tasks.publishing.publish import publish
from tasks.publishing.transports.base import Transfer
from tasks.publishing.transports.disk import Loading
from tasks.publishing.transports.process_group import Broadcast
from tasks.publishing.transports.staged import StagedVersion
from tasks.publishing.transports.tensor import Sending
from tasks.record.commits import PublishReport
from tasks.record.manifest import Manifest
from tasks.record.weight_version import WeightVersion

COPIES = {"disk": 1.0, "tensor": 10.0, "process_group": 2.0}
BUCKET_MIB = 64
PROBE = [[1, 10, 100, 1000, 10000], [2, 20, 200, 2000, 20000]]


def measure_publish(folder: Path) -> Table:
    """Publishes by every transport, and what the machine could do."""
    config = benchmark_config(folder, publish={"bucket_mb": BUCKET_MIB})
    trainer = LoneTrainer(config, save_random_model(folder), folder)
    try:
        staged = _stage(trainer, folder, config.number_format)
        with ExitStack() as stack:
            served = [stack.enter_context(_engine(staged, folder, number)) for number in range(2)]
            transfers = (Loading(), Sending(BUCKET_MIB * 2**20), Broadcast(trainer, "gloo"))
            table = Table(
                "publish",
                "GB/s",
                "bar: copy bandwidth / copies / 2",
                "transfer s",
                "with hashes and probe s",
                "extra memory of all three processes, MiB",
            )
            for transfer in transfers:
                table.add_row(*_row(transfer, staged, served, config))
        return table
    finally:
        trainer.close()


def copy_bandwidth() -> float:
    """Bytes that all cores copy from memory to memory, GB/s."""
    source = torch.ones(2**28, dtype=torch.uint8)
    target = torch.empty_like(source)
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    seconds = []
    for _ in range(REPEATS + 1):
        started = time.monotonic()
        target.copy_(source)
        seconds.append(time.monotonic() - started)
    torch.set_num_threads(threads)
    return source.nbytes / median(seconds[1:]) / 1e9


def _row(
    transfer: Transfer, staged: StagedVersion, served: list[tuple[Engine, int]], config: RunConfig
) -> list[str]:
    engines = [engine for engine, _ in served]
    with peak_memory([os.getpid(), *(pid for _, pid in served)]) as peak:  # apart: sampling takes a core
        publish(engines, staged, transfer, config.publish)
    reports = [publish(engines, staged, transfer, config.publish) for _ in range(REPEATS)]
    typical: PublishReport = sorted(reports, key=lambda report: report.transfer_seconds)[REPEATS // 2]
    bandwidth, copies = copy_bandwidth(), COPIES[transfer.name]
    return [
        transfer.name,
        f"{typical.gb_per_second:.2f}",
        f"{bandwidth:.1f} / {copies:g} / 2 = {bandwidth / copies / 2:.2f}",
        f"{typical.transfer_seconds:.2f}",
        f"{typical.interval.seconds:.2f}",
        f"{peak[0] / 2**20:.0f} ({peak[0] / _largest_bucket(staged):.1f} buckets)",
    ]


def _largest_bucket(staged: StagedVersion) -> float:
    """Bytes; a tensor larger than a bucket is one by itself."""
    sizes = (Manifest(tensors={name: entry}).bytes for name, entry in staged.manifest.tensors.items())
    return max(BUCKET_MIB * 2**20, *sizes)


def _stage(trainer: LoneTrainer, folder: Path, number_format: str) -> StagedVersion:
    """Random weights, exported as the trainer exports each version."""
    manifest = trainer.export_to(folder / "000001")
    weights = WeightVersion(
        number=1, parent=0, step=1, hash=manifest.hash, bytes=manifest.bytes, format=number_format
    )
    probe = Probe(sequences=PROBE, logprobs=trainer.score(PROBE))
    return StagedVersion(weights, folder / "000001", manifest, probe)


@contextmanager
def _engine(staged: StagedVersion, folder: Path, number: int) -> Iterator[tuple[Engine, int]]:
    """An engine and its process."""
    port, config = free_port(), EmbeddedEngine()
    server = launch(config, staged.folder, LOOPBACK, port)
    process = spawn(server.command, folder / f"engine-{number}.log", server.env)
    client = EngineClient(f"http://127.0.0.1:{port}")
    try:
        wait_until(client.healthy, config.start_timeout_s, "the engine")
        yield Engine(f"engine-{number}", client), process.pid
    finally:
        client.close()
        stop_tree(process.pid)
