"""Tensors reach every engine, and sessions and groups are left closed however a transfer ends."""

from dataclasses import replace
from pathlib import Path

import pytest

from infra.engines.client import EngineFailed, EngineRefused, EngineUnreachable
from tasks.fleet.engines import Engine
from tasks.probe.probe import Probe
from tasks.publishing.transports.disk import Loading
from tasks.publishing.transports.process_group import Broadcast
from tasks.publishing.transports.staged import StagedVersion
from tasks.publishing.transports.tensor import Sending
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.training.group import TrainerError, TrainerLost
from tests.support.fakes import FakeEngine, FakeTrainer, Wire, tensors_of
from tests.support.versions import version_named

WEIGHTS = 4.0
HELD = Manifest.of(tensors_of(WEIGHTS))
STAGED = StagedVersion(version_named(1, HELD), Path("000001"), HELD, Probe(sequences=[], logprobs=[]))


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def trainer(run: Run, wire: Wire) -> FakeTrainer:
    trainer = FakeTrainer(run, wire)
    trainer.weights = WEIGHTS
    return trainer


@pytest.fixture
def clients(wire: Wire) -> list[FakeEngine]:
    return [FakeEngine(wire), FakeEngine(wire)]


def named(clients: list[FakeEngine]) -> list[Engine]:
    return [Engine(f"engine-{number}", client) for number, client in enumerate(clients)]


def broadcast(trainer: FakeTrainer, clients: list[FakeEngine]) -> None:
    Broadcast(trainer, "gloo").transfer(named(clients), STAGED)


def assert_all_closed(clients: list[FakeEngine]) -> None:
    assert not any(client.updating for client in clients)
    assert not any(client.groups for client in clients)


def test_every_engine_receives_every_bucket(trainer: FakeTrainer, clients: list[FakeEngine]) -> None:
    broadcast(trainer, clients)
    for client in clients:
        assert client.loads == ["layer.weight", "norm.weight"]
        assert Manifest.of(client.tensors) == STAGED.manifest
    assert_all_closed(clients)
    assert trainer.group is None


def test_each_transfer_has_a_group_of_its_own(
    trainer: FakeTrainer, clients: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    join = FakeTrainer.open_update_group

    def noted(self: FakeTrainer, address: str, port: int, world_size: int, group_name: str) -> None:
        names.append(group_name)
        join(self, address, port, world_size, group_name)

    monkeypatch.setattr(FakeTrainer, "open_update_group", noted)
    broadcast(trainer, clients)
    broadcast(trainer, clients)
    assert len(set(names)) == 2


@pytest.mark.parametrize("fault", [TrainerLost("a rank died"), TrainerError("no update group is open")])
def test_a_broadcast_that_fails_leaves_nothing_open(
    trainer: FakeTrainer, clients: list[FakeEngine], fault: TrainerError
) -> None:
    trainer.faults["broadcast_bucket"] = fault
    with pytest.raises(type(fault)):
        broadcast(trainer, clients)
    assert_all_closed(clients)
    assert trainer.group is None or trainer.lost
    assert not clients[0].loads


def test_after_a_failed_broadcast_the_next_one_goes_through(
    trainer: FakeTrainer, clients: list[FakeEngine]
) -> None:
    trainer.faults["broadcast_bucket"] = TrainerError("once")
    with pytest.raises(TrainerError, match="once"):
        broadcast(trainer, clients)
    broadcast(trainer, clients)
    assert [client.weights for client in clients] == [WEIGHTS, WEIGHTS]


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("update_from_group", EngineFailed("out of memory")),
        ("begin_update", EngineRefused("an update is open")),
        ("init_update_group", EngineFailed("no such backend")),
    ],
)
def test_an_engine_that_fails_leaves_the_groups_and_the_other_engine_closed(
    trainer: FakeTrainer,
    clients: list[FakeEngine],
    method: str,
    fault: EngineFailed | EngineRefused,
) -> None:
    clients[1].faults[method] = fault
    with pytest.raises((type(fault), TrainerLost)):  # the trainer waits in vain for one that does not join
        broadcast(trainer, clients)
    assert_all_closed(clients)
    assert trainer.group is None


def test_an_engine_that_dies_does_not_keep_the_other_in_the_group(
    trainer: FakeTrainer, clients: list[FakeEngine]
) -> None:
    clients[0].faults["update_from_group"] = EngineUnreachable("gone")
    clients[0].faults["end_update"] = EngineUnreachable("gone")
    clients[0].faults["destroy_update_group"] = EngineUnreachable("gone")
    with pytest.raises(EngineUnreachable):
        broadcast(trainer, clients)
    assert_all_closed(clients[1:])
    assert trainer.group is None


@pytest.fixture
def exported(run: Run, trainer: FakeTrainer) -> StagedVersion:
    """STAGED, in a folder."""
    trainer.export()
    trainer.keep(run.weights_key(1))
    return replace(STAGED, folder=run.store.local(run.weights_key(1)))


def test_from_disk_every_engine_loads_the_folder_and_a_refusal_is_raised(
    clients: list[FakeEngine], exported: StagedVersion
) -> None:
    engines = named(clients)
    for client in clients:
        client.pause()
    clients[1].faults["update_from_disk"] = EngineRefused("no room")
    with pytest.raises(EngineRefused, match="no room"):
        Loading().transfer(engines, exported)
    Loading().transfer(engines, exported)
    assert [client.loads for client in clients] == [["000001", "000001"], ["000001"]]
    assert [client.weights for client in clients] == [WEIGHTS, WEIGHTS]


def test_every_engine_is_sent_every_bucket(clients: list[FakeEngine], exported: StagedVersion) -> None:
    Sending(bucket_bytes=1).transfer(named(clients), exported)
    for client in clients:
        assert client.loads == ["layer.weight", "norm.weight"]
        assert Manifest.of(client.tensors) == STAGED.manifest
    assert_all_closed(clients)


@pytest.mark.parametrize("method", ["update_from_bucket", "begin_update"])
def test_an_engine_that_takes_no_bucket_leaves_no_session_open(
    clients: list[FakeEngine], exported: StagedVersion, method: str
) -> None:
    clients[1].faults[method] = EngineRefused("no room")
    with pytest.raises(EngineRefused, match="no room"):
        Sending(bucket_bytes=1).transfer(named(clients), exported)
    assert_all_closed(clients)
    assert "norm.weight" not in clients[0].loads
    Sending(bucket_bytes=1).transfer(named(clients), exported)
    assert [client.weights for client in clients] == [WEIGHTS, WEIGHTS]
