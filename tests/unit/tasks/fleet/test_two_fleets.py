"""Two versions are evaluated at once on engines of their own; the rollout engines notice nothing."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest
import ray
from safetensors.torch import load_file

from infra.engines.client import EngineClient, SamplingParams
from tasks.evaluation.evaluate import evaluated
from tasks.fleet.actors import actor_names
from tasks.fleet.engines import Engine, Fleet, stop_fleets
from tasks.fleet.serving import evaluation_fleet, is_served
from tasks.probe.probe import Probe, save_probe
from tasks.publishing.serving import ensure_served
from tasks.record.evaluations import find_report
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.versions import read_manifest, stage_version
from tests.support.chaos import servers_below
from tests.support.engines import TINY_MODEL, altered_copy, reference_logprobs

pytestmark = [pytest.mark.slow, pytest.mark.services]
HELD, EVALUATED = 1, (3, 5)
"""What the rollout engine holds, and what is evaluated meanwhile."""
SEQUENCES = [[1, 40, 41, 42, 43, 44], [1, 60, 61, 62]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray cluster of this machine."""
    ray.init("local", num_cpus=8, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    yield
    ray.shutdown()


def stage_altered(run: Run, version: int) -> None:
    """Stage the tiny model with another last norm, as a trainer that holds it would."""
    folder = run.store.folder(run.weights_key(version))
    folder.parent.mkdir(parents=True, exist_ok=True)
    altered_copy(
        TINY_MODEL, folder, lambda name, t: t * (1 + 0.1 * version) if name == "model.norm.weight" else t
    )
    manifest = Manifest.of(load_file(folder / "model.safetensors"))
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    run.store.upload(run.weights_key(version))
    assert stage_version(run, manifest, version - 1 if version else None, version).number == version
    logprobs = [reference_logprobs(folder, sequence).tolist() for sequence in SEQUENCES]
    save_probe(run, version, Probe(sequences=SEQUENCES, logprobs=logprobs))


@pytest.fixture
def staged(cluster: None, modelled_run: Run, revised: Callable[..., Run], tmp_path: Path) -> Iterator[Run]:
    """A run with six versions, and a rollout engine that holds one of them."""
    evaluation = {"engines": 1, "problems": 20, "samples": 1}
    run = revised(modelled_run, evaluation=evaluation)
    for version in range(max(EVALUATED) + 1):
        stage_altered(run, version)
    ensure_served(Fleet(run), HELD)
    yield run
    stop_fleets(run)


def keeps_answering(client: EngineClient, done: Event) -> set[int]:
    """The versions that the answers to one request after another came from, until it is done."""
    versions: set[int] = set()
    while not done.is_set():
        (answer,) = client.generate([[1, 40, 41]], [SamplingParams(max_new_tokens=4, temperature=0)])
        versions |= {span.version for span in answer.spans}
    return versions


def pid_of(engine: Engine) -> int:
    """The process that listens at an engine's URL."""
    port = int(engine.client.url.rsplit(":", 1)[1])
    servers = servers_below(os.getpid())
    return next(each.pid for each in servers if any(n.laddr.port == port for n in each.net_connections()))


def test_two_versions_are_evaluated_at_once_and_the_rollout_fleet_answers_throughout(staged: Run) -> None:
    (rollout,) = Fleet(staged).serving(HELD)
    before, done = pid_of(rollout), Event()
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        stack.callback(done.set)
        answering = pool.submit(keeps_answering, rollout.client, done)
        fleets = {version: stack.enter_context(evaluation_fleet(staged, version)) for version in EVALUATED}
        list(pool.map(ensure_served, fleets.values(), fleets))
        for version, fleet in fleets.items():
            assert is_served(fleet, version)
            (engine,) = fleet.serving(version)
            assert engine.name == f"evaluation-v{version}-engine-0" and pid_of(engine) != before
            (held,) = engine.client.checksums()
            manifest = read_manifest(staged, version).manifest
            assert held.checksums == {name: entry.hash for name, entry in manifest.tensors.items()}
        reports = list(pool.map(lambda version: evaluated(fleets[version], version, None), EVALUATED))
        done.set()
        assert answering.result() == {HELD}
    assert [report.version for report in reports] == list(EVALUATED)
    assert [find_report(staged, version, "held-out") for version in EVALUATED] == reports
    (still,) = Fleet(staged).serving(HELD)
    assert (still.client.url, pid_of(still)) == (rollout.client.url, before)
    assert actor_names(staged) == ["engine-0"]


def test_release_finds_the_fleets_that_are_there(staged: Run) -> None:
    left_over = Fleet(staged, "evaluation", EVALUATED[0])
    ensure_served(left_over, EVALUATED[0])
    servers = servers_below(os.getpid())
    assert sorted(actor_names(staged)) == ["engine-0", "evaluation-v3-engine-0"] and len(servers) == 2
    stop_fleets(staged)
    assert actor_names(staged) == [] and not any(server.is_running() for server in servers)


def test_without_engines_of_its_own_an_evaluation_takes_the_rollout_fleet(
    run: Run, revised: Callable[..., Run]
) -> None:
    with evaluation_fleet(run, 3) as fleet:
        assert fleet == Fleet(run)


def test_engines_of_an_evaluation_take_free_ports(run: Run, revised: Callable[..., Run]) -> None:
    ported = revised(run, engine={"port": 30000, "count": 4}, evaluation={"engines": 2})
    assert Fleet(ported).engine == ported.config.engine
    own = Fleet(ported, "evaluation", 3).engine
    assert (own.port, own.count) == (None, 2)
