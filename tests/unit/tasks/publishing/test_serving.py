"""Engines that are handed out hold the version that was asked for, whatever they held before."""

from collections.abc import Callable

import pytest

from infra.engines.client import UNSTAMPED, EngineRefused, EngineTimeout, EngineUnreachable
from tasks.fleet.engines import Engine, Fleet
from tasks.fleet.serving import servers_of
from tasks.probe.records import alignment_uri, read_alignment
from tasks.publishing.publish import PublishRefused
from tasks.publishing.serving import ensure_served, publish_version
from tasks.record.run import Run
from tasks.record.versions import read_version
from tasks.training.group import TrainerLost
from tasks.training.staging import stage
from tests.support.fakes import FakeEngine, FakeFleet, FakeTrainer, FakeTrainers, hash_of

PROBE = [[1, 2, 3], [4, 5]]
WEIGHTS = (3.0, 4.0)
"""Of versions 0 and 1."""


@pytest.fixture
def two(modelled_run: Run, revised: Callable[..., Run]) -> Run:
    """A run with two engines and versions 0 and 1 staged."""
    run = revised(modelled_run, engine={"count": 2})
    for version, weights in enumerate(WEIGHTS):
        trainer = FakeTrainer(run)
        trainer.weights = weights
        stage(run, trainer, version, version - 1 if version else None, PROBE)
    return run


@pytest.fixture
def fleet(trainers: FakeTrainers, monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    """Two engines that are down, in place of the Ray actors."""
    fleet = FakeFleet([FakeEngine(trainers.wire), FakeEngine(trainers.wire)])
    for client in fleet.clients:
        client.up = False

    def start(on: Fleet, key: str, restart_hung: bool = False) -> list[Engine]:
        return fleet.start(on.run.store.local(key), restart_hung)

    monkeypatch.setattr(Fleet, "start", start)
    monkeypatch.setattr(Fleet, "serving", lambda _, version: fleet.serving(version))
    return fleet


def held(fleet: FakeFleet) -> list[tuple[int, float]]:
    """Stamp and weights of every engine."""
    return [(client.version, client.weights) for client in fleet.clients]


def test_a_publish_starts_the_engines_and_brings_them_the_version(two: Run, fleet: FakeFleet) -> None:
    report = publish_version(two, read_version(two, 1))
    assert held(fleet) == [(1, 4.0), (1, 4.0)]
    assert fleet.started_on == [two.store.folder(two.weights_key(1))]
    assert (report.transport, report.probe_abs_diff_max) == ("disk", 0)
    assert report.engine_hashes == {"engine-0": hash_of(4.0), "engine-1": hash_of(4.0)}


def test_a_refused_publish_brings_the_parent_back_and_is_reported(two: Run, fleet: FakeFleet) -> None:
    publish_version(two, read_version(two, 0))
    fleet.clients[1].faults["update_from_disk"] = EngineRefused("engine-1 has no room")
    with pytest.raises(PublishRefused, match="version 1 refused: engine-1 has no room"):
        publish_version(two, read_version(two, 1))
    assert held(fleet) == [(0, 3.0), (0, 3.0)]
    assert fleet.clients[0].loads[-2:] == ["000001", "000000"]  # it had the new one already
    assert not any(client.paused for client in fleet.clients)


def test_every_publish_leaves_its_alignment_report(two: Run, fleet: FakeFleet) -> None:
    publish_version(two, read_version(two, 0))
    report = read_alignment(two, 0)
    assert report.aligned and [engine.engine for engine in report.engines] == ["engine-0", "engine-1"]
    assert report.tolerance == two.config.publish.probe_tolerance


def test_an_engine_that_computes_otherwise_is_named_with_its_worst_token_and_the_report(
    two: Run, fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_version(two, read_version(two, 0))
    engine, score = fleet.clients[1], fleet.clients[1].score

    def off_at_token_3(sequences: list[list[int]], start: int = 0) -> list[list[float]]:
        wrong = [score([tokens])[0] for tokens in sequences]
        if engine.weights == WEIGHTS[1]:
            wrong[0][1] -= 0.47
        return [row[start:] for row in wrong]

    monkeypatch.setattr(engine, "score", off_at_token_3)
    with pytest.raises(PublishRefused) as refusal:
        publish_version(two, read_version(two, 1))
    assert str(refusal.value) == (
        "version 1 refused: log-probabilities of engine-1 differ from the trainer's by 0.47, more than "
        "publish.probe_tolerance 0.0001: worst at token 3 '!' (sequence 0, position 2): trainer -4.03, "
        f"engine -4.5: see {alignment_uri(two, 1)}"
    )
    report = read_alignment(two, 1)
    assert not report.aligned
    assert [engine.worst[0].token for engine in report.engines] == [2, 3]
    assert held(fleet) == [(0, 3.0), (0, 3.0)]


def test_without_a_parent_a_refused_publish_leaves_the_engines_unstamped(two: Run, fleet: FakeFleet) -> None:
    fleet.clients[0].faults["update_from_disk"] = EngineRefused("no room")
    with pytest.raises(PublishRefused):
        publish_version(two, read_version(two, 0))
    assert [client.version for client in fleet.clients] == [UNSTAMPED, UNSTAMPED]


def test_a_parent_that_was_pruned_leaves_the_refusal_as_it_is(two: Run, fleet: FakeFleet) -> None:
    two.store.remove(two.weights_key(0))
    fleet.clients[0].faults["update_from_disk"] = EngineRefused("no room")
    with pytest.raises(PublishRefused, match="version 1 refused"):
        publish_version(two, read_version(two, 1))
    assert 1 not in [client.version for client in fleet.clients]


def test_a_parent_that_is_refused_too_leaves_the_first_refusal(two: Run, fleet: FakeFleet) -> None:
    fleet.clients[0].faults["update_from_disk"] = EngineRefused("no room")
    fleet.clients[1].faults["checksums"] = EngineRefused("no hashes")
    with pytest.raises(PublishRefused, match=r"version 1 refused: .*no room"):
        publish_version(two, read_version(two, 1))
    assert [client.version for client in fleet.clients] == [UNSTAMPED, UNSTAMPED]


def test_an_engine_that_dies_while_the_parent_comes_back_does_not_hide_the_refusal(
    two: Run, fleet: FakeFleet
) -> None:
    publish_version(two, read_version(two, 0))
    fleet.clients[0].faults["update_from_disk"] = EngineRefused("no room")
    fleet.clients[1].faults["checksums"] = EngineUnreachable("gone")
    with pytest.raises(PublishRefused, match=r"version 1 refused: .*no room"):
        publish_version(two, read_version(two, 1))


def test_an_engine_that_hangs_in_a_publish_is_started_anew_for_the_next_try(
    two: Run, fleet: FakeFleet
) -> None:
    publish_version(two, read_version(two, 0))
    fleet.clients[1].hangs = True
    with pytest.raises(EngineTimeout):
        publish_version(two, read_version(two, 1))
    assert not fleet.clients[1].hangs
    assert 1 not in [client.version for client in fleet.clients]
    publish_version(two, read_version(two, 1))
    assert held(fleet) == [(1, 4.0), (1, 4.0)]


def test_engines_that_serve_the_version_are_handed_out_untouched(two: Run, fleet: FakeFleet) -> None:
    publish_version(two, read_version(two, 1))
    ensure_served(Fleet(two), 1)
    assert servers_of(Fleet(two), 1) == fleet.clients
    assert [client.loads for client in fleet.clients] == [["000001"], ["000001"]]
    assert len(fleet.started_on) == 1


@pytest.mark.parametrize("behind", ["down", "unstamped", "hanging", "on another version"])
def test_an_engine_that_is_behind_gets_the_version_before_it_is_handed_out(
    two: Run, fleet: FakeFleet, behind: str
) -> None:
    publish_version(two, read_version(two, 1))
    late = fleet.clients[1]
    late.up = behind != "down"
    late.hangs = behind == "hanging"
    late.version = 0 if behind == "on another version" else UNSTAMPED
    ensure_served(Fleet(two), 1)
    assert servers_of(Fleet(two), 1) == fleet.clients
    assert held(fleet) == [(1, 4.0), (1, 4.0)]
    assert [client.loads for client in fleet.clients] == [["000001"], ["000001", "000001"]]


def test_an_engine_that_does_not_take_the_version_is_not_handed_out(two: Run, fleet: FakeFleet) -> None:
    publish_version(two, read_version(two, 1))
    fleet.clients[1].up = False
    fleet.clients[1].faults["checksums"] = EngineRefused("no checksums")
    with pytest.raises(PublishRefused, match="version 1 refused"):
        ensure_served(Fleet(two), 1)
    assert fleet.serving(1) == fleet.engines()[:1]


def test_an_engine_that_dies_again_is_left_out(
    two: Run, fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_version(two, read_version(two, 1))
    rounds = iter([fleet.engines()[:1], fleet.engines()[:1]])
    monkeypatch.setattr(Fleet, "serving", lambda _, version: next(rounds))
    ensure_served(Fleet(two), 1)
    assert servers_of(Fleet(two), 1) == fleet.clients[:1]


def test_a_process_group_carries_the_trainers_weights(
    two: Run, fleet: FakeFleet, trainers: FakeTrainers, revised: Callable[..., Run]
) -> None:
    trainers.start(two).weights = WEIGHTS[1]
    report = publish_version(revised(two, publish={"transport": "process_group"}), read_version(two, 1))
    assert report.transport == "process_group"
    assert held(fleet) == [(1, 4.0), (1, 4.0)]
    assert fleet.clients[0].loads == ["layer.weight", "norm.weight"]


def test_the_publisher_sends_the_exported_tensors(
    two: Run, fleet: FakeFleet, revised: Callable[..., Run]
) -> None:
    report = publish_version(revised(two, publish={"transport": "tensor"}), read_version(two, 1))
    assert report.transport == "tensor"
    assert held(fleet) == [(1, 4.0), (1, 4.0)]
    assert fleet.clients[0].loads == ["layer.weight", "norm.weight"]


def test_without_a_trainer_the_version_goes_by_disk(
    two: Run, fleet: FakeFleet, trainers: FakeTrainers, revised: Callable[..., Run]
) -> None:
    trainers.start(two).stop()
    report = publish_version(revised(two, publish={"transport": "process_group"}), read_version(two, 1))
    assert report.transport == "disk"
    assert held(fleet) == [(1, 4.0), (1, 4.0)]


def test_a_trainer_lost_in_the_broadcast_is_healed_by_the_next_try(
    two: Run, fleet: FakeFleet, trainers: FakeTrainers, revised: Callable[..., Run]
) -> None:
    run = revised(two, publish={"transport": "process_group"})
    trainer = trainers.start(two)
    trainer.weights = WEIGHTS[1]
    trainer.faults["broadcast_bucket"] = TrainerLost("a rank died")
    with pytest.raises(TrainerLost):
        publish_version(run, read_version(two, 1))
    assert 1 not in [client.version for client in fleet.clients]
    assert publish_version(run, read_version(two, 1)).transport == "disk"
    assert held(fleet) == [(1, 4.0), (1, 4.0)]


def test_a_trainer_that_holds_other_weights_is_refused(
    two: Run, fleet: FakeFleet, trainers: FakeTrainers, revised: Callable[..., Run]
) -> None:
    publish_version(two, read_version(two, 0))
    trainers.start(two).weights = 5.0
    with pytest.raises(PublishRefused, match="version 1 refused: engine-0 holds 2 of 2 tensors"):
        publish_version(revised(two, publish={"transport": "process_group"}), read_version(two, 1))
    assert held(fleet) == [(0, 3.0), (0, 3.0)]
