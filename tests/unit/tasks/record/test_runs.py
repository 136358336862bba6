"""Runs are created once, found again, changed only in what may change, and worked on by one process."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from configs.errors import UserError
from configs.loading import ConfigError, override
from configs.run import RunConfig
from infra.home import Home
from tasks.record.commits import StepCommit
from tasks.record.run import Run
from tasks.record.runs import (
    RunError,
    all_runs,
    create_run,
    exclusive,
    load_run,
    newest_version,
    passing_run,
    revise_run,
)
from tests.support.s3 import S3Server


@pytest.fixture
def home(run: Run) -> Home:
    return run.home


@pytest.fixture
def config(run: Run) -> RunConfig:
    return run.config


def ids(runs: list[Run]) -> list[str]:
    return [run.id for run in runs]


def line(error: pytest.ExceptionInfo[UserError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_created_run_is_found_again(home: Home, config: RunConfig) -> None:
    run = create_run(config, home, "mine")
    assert load_run("mine", home) == run
    assert create_run(config, home, "mine") == run
    assert ids(all_runs(home)) == ["mine"]


def test_a_run_is_found_in_a_store_of_its_own(home: Home, config: RunConfig, tmp_path: Path) -> None:
    elsewhere = override(config, [f"store.path={tmp_path / 'elsewhere'}"])
    run = create_run(elsewhere, home, "mine")
    assert (tmp_path / "elsewhere" / "mine" / "run.json").is_file()
    assert load_run("mine", home) == run


@pytest.mark.slow
def test_a_run_on_s3_is_found_again_also_from_another_machine(
    home: Home, config: RunConfig, s3: S3Server, tmp_path: Path
) -> None:
    on_s3 = override(config, [f"store={s3.config().model_dump_json()}"])
    run = create_run(on_s3, home, "mine")
    assert load_run("mine", home) == run
    assert run.store.uri("mine/run.json").startswith("s3://") and run.store.exists("mine/run.json")
    there = Home(tmp_path / "there")
    with pytest.raises(RunError, match=r"run mine exists with another configuration.*overnight resume mine"):
        create_run(override(on_s3, ["seed=1"]), there, "mine")
    assert load_run("mine", there).config == on_s3
    assert create_run(on_s3, there, "mine") == load_run("mine", there)


def test_without_an_id_each_run_gets_one_of_its_own(home: Home, config: RunConfig) -> None:
    runs = [create_run(config, home) for _ in range(3)]
    assert len(set(ids(runs))) == 3
    assert all(run.id.startswith("unit-") for run in runs)


def test_of_a_passing_run_only_its_records_stay(home: Home, config: RunConfig) -> None:
    with passing_run(config, home) as run:
        run.store.create(f"{run.id}/versions/000000/alignment.json", b"{}")
        run.store.create(f"{run.weights_key(0)}/model.safetensors", b"weights")
    assert run.id.startswith("unit-check-")
    assert run.store.list(run.id) == [f"{run.id}/versions/000000/alignment.json"]
    assert all_runs(home) == []


def test_the_newest_version_is_the_last_committed_one(
    run: Run, make_commit: Callable[..., StepCommit]
) -> None:
    with pytest.raises(RunError, match="run unit-1 has no weight version yet: `overnight resume unit-1`"):
        newest_version(run)
    run.commits.append(make_commit(0))
    run.commits.append(make_commit(1, version=5))
    assert newest_version(run) == 5


def test_an_id_is_not_given_to_another_configuration(home: Home, config: RunConfig) -> None:
    create_run(config, home, "mine")
    with pytest.raises(RunError) as error:
        create_run(override(config, ["seed=1"]), home, "mine")
    assert "run mine exists with another configuration" in line(error)
    assert "overnight resume mine" in line(error)
    assert load_run("mine", home).config == config


@pytest.mark.parametrize("run_id", ["a b", "a/b", "../b", ".hidden", "-x", "a\nb", "..."])
def test_an_id_that_is_no_name_is_refused(home: Home, config: RunConfig, run_id: str) -> None:
    with pytest.raises(RunError, match="use letters, digits, dashes, dots and underscores"):
        create_run(config, home, run_id)
    assert all_runs(home) == []


@pytest.mark.parametrize("run_id", ["nowhere", "no/where", "../nowhere", ".nowhere"])
def test_an_unknown_run_is_told_with_those_that_are_known(home: Home, config: RunConfig, run_id: str) -> None:
    with pytest.raises(RunError, match="known runs are none"):
        load_run(run_id, home)
    create_run(config, home, "mine")
    with pytest.raises(RunError) as error:
        load_run(run_id, home)
    assert f"no run {run_id} " in line(error) and "known runs are mine" in line(error)


def break_store(home: Home) -> None:
    (home.runs / "broken" / "run.json").unlink()


def break_config(home: Home) -> None:
    (home.runs / "broken" / "run.json").write_text('{"name": "broken"}')


def break_entry(home: Home) -> None:
    (home.registry / "broken.json").write_text('{"kind": ')


def break_disk(home: Home) -> None:
    document = home.runs / "broken" / "run.json"
    document.unlink()
    document.symlink_to(document)  # reading it is an OSError, as on a disk that fails


@pytest.mark.parametrize("damage", [break_store, break_config, break_entry, break_disk])
def test_a_run_that_cannot_be_read_is_named_and_hides_no_other(
    home: Home,
    config: RunConfig,
    damage: Callable[[Home], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for run_id in ("first", "broken", "last"):
        create_run(config, home, run_id)
    damage(home)
    with pytest.raises(UserError) as error:
        load_run("broken", home)
    assert "broken" in line(error)
    assert sorted(ids(all_runs(home))) == ["first", "last"]
    assert "broken" in caplog.text


def test_settings_of_the_steps_to_come_can_be_revised(home: Home, config: RunConfig) -> None:
    run = create_run(config, home, "mine")
    revised = revise_run(run, ["loop.steps=9", "gates={max_grad_norm: 2.0}"])
    assert (revised.config.loop.steps, revised.config.gates.max_grad_norm) == (9, 2.0)
    assert load_run("mine", home) == revised
    assert revised.remaining_steps() == range(1, 10)


@pytest.mark.parametrize(
    "text", ["seed=1", "model.path=other", "problems={kind: few_shot_addition}", "rollout.temperature=0.5"]
)
def test_what_a_run_is_cannot_be_revised(home: Home, config: RunConfig, text: str) -> None:
    run = create_run(config, home, "mine")
    with pytest.raises(RunError) as error:
        revise_run(run, ["loop.steps=9", text])
    section = text.replace("=", ".").split(".")[0]
    assert f"--set {section}: a run keeps its {section}" in line(error)
    assert load_run("mine", home) == run


@pytest.mark.parametrize("text", ["publish.format=fp8_channel", "engine.dtype=bfloat16"])
def test_a_run_keeps_the_number_format_of_its_weights(home: Home, config: RunConfig, text: str) -> None:
    run = create_run(config, home, "mine")
    with pytest.raises(RunError, match="keeps the number format of its weights, float32: leave publish"):
        revise_run(run, ["gates={}", "publish={probe_tolerance: 9, prefix_tolerance: 9}", text])
    assert load_run("mine", home) == run


def test_a_revision_that_is_not_valid_changes_nothing(home: Home, config: RunConfig) -> None:
    run = create_run(config, home, "mine")
    with pytest.raises(ConfigError, match=r"loop\.steps"):
        revise_run(run, ["loop.steps=0"])
    assert load_run("mine", home) == run


HOLD = """
import sys
from tasks.record.run import Run
from tasks.record.runs import exclusive
with exclusive(Run.model_validate_json(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another_process_holding(run: Run) -> Iterator[subprocess.Popen[str]]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, run.model_dump_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()


@contextmanager
def another_process_refused(run: Run) -> Iterator[None]:
    command = [sys.executable, "-c", HOLD, run.model_dump_json()]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert f"is being worked on by process {os.getpid()}" in refused.stderr
    yield


def test_a_run_is_worked_on_by_one_process_and_its_death_lets_go(run: Run) -> None:
    other = run.model_copy(update={"id": "another"})
    with another_process_holding(run) as holder:
        with pytest.raises(RunError) as error, exclusive(run):
            pass
        assert f"run unit-1 is being worked on by process {holder.pid}: wait for it" in line(error)
        with exclusive(other):
            pass
    with exclusive(run):
        pass


def test_a_run_is_let_go_of_after_an_error(run: Run) -> None:
    with pytest.raises(KeyError), exclusive(run):
        raise KeyError("a bug")
    with exclusive(run), another_process_refused(run):
        pass


def test_who_has_a_run_may_take_it_again_and_has_it_until_its_own_end(run: Run) -> None:
    with exclusive(run):
        with exclusive(run):
            pass
        with another_process_refused(run):
            pass
    with another_process_holding(run):
        pass


def test_the_name_that_models_have_in_a_store_is_no_runs(run: Run) -> None:
    with pytest.raises(RunError, match="choose another --run-id"):
        create_run(run.config, run.home, "models")
