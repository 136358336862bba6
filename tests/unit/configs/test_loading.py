"""Whatever is wrong with a config is one line that names the field to change."""

import pytest
from pydantic import ValidationError

from configs.algorithm import DapoAlgorithm
from configs.errors import UserError
from configs.loading import ConfigError, load_config, override
from configs.run import RunConfig
from configs.training import StateLayout, TrainerConfig

MINIMAL = """
name: unit
model: {kind: folder, path: model}
problems: {kind: arithmetic}
"""


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "unit.yaml"
    path.write_text(MINIMAL)
    return path


def error_of(preset, *overrides):
    with pytest.raises(ConfigError) as caught:
        load_config(preset, list(overrides))
    message = str(caught.value)
    assert isinstance(caught.value, UserError)
    assert "\n" not in message
    return message


def test_defaults_and_relative_paths(preset):
    config = load_config(preset)
    assert config.model.path == preset.parent / "model"
    assert config.loop.steps == 60 and config.loop.mode == "sync"


def test_set_takes_yaml_values_for_nested_fields(preset):
    config = load_config(
        preset,
        [
            "loop.steps=7",
            "trainer.learning_rate=1e-5",
            'rollout.stop=["}", "."]',
            "gates={max_logprob_diff: 0.5}",
            "algorithm.tis_cap=null",
            "deterministic=false",
            "name=a-b",
        ],
    )
    assert config.loop.steps == 7
    assert config.trainer.learning_rate == 1e-5
    assert config.rollout.stop == ("}", ".")
    assert config.gates.max_logprob_diff == 0.5
    assert config.algorithm.tis_cap is None
    assert (config.deterministic, config.name) == (False, "a-b")


def test_a_store_is_local_unless_said(preset):
    assert load_config(preset).store.path is None
    assert load_config(preset, ["store.path=runs"]).store.path == preset.parent / "runs"
    assert load_config(preset, ["store={kind: s3, bucket: runs}"]).store.prefix == "overnight"


def test_an_algorithm_is_dapo_unless_said(preset):
    document = load_config(preset, ["algorithm.clip_high=0.3"]).model_dump(mode="json")
    assert document["algorithm"].pop("kind") == "dapo"  # a record may lack it
    assert RunConfig.model_validate(document).algorithm == DapoAlgorithm(clip_high=0.3)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (
            "rollout.promts_per_step=8",
            ["rollout.promts_per_step: unknown key: did you mean prompts_per_step?"],
        ),
        ("rolout.prompts_per_step=8", ["rolout: unknown key: did you mean rollout?"]),
        ("model.pth=x", ["model.pth: unknown key: did you mean path?"]),
        ("loop.steps=0", ["loop.steps: must be at least 1, not 0"]),
        ("loop.steps=ten", ['loop.steps: "ten" is not a whole number']),
        ("loop.steps=2.5", ["loop.steps: 2.5 is not a whole number"]),
        ("loop=5", ["loop: 5 is not a mapping: write {name: value}"]),
        ("deterministic=perhaps", ['deterministic: "perhaps" is not true or false']),
        ("description=5", ["description: 5 is not a text: put it in quotes"]),
        ("rollout.stop=x", ['rollout.stop: "x" is not a list: write [a, b]']),
        ("trainer.learning_rate=.nan", ["trainer.learning_rate: must be finite"]),
        (
            "problems={families: [sum]}",
            ["problems: kind missing: write kind: arithmetic, few_shot_addition or"],
        ),
        ("problems.families=[]", ["problems.families: has too few entries: at least 1"]),
        (
            "engine={kind: sglang, python: p, devize: cpu}",
            ["engine.devize: unknown key: did you mean device?"],
        ),
        ("engine={kind: sglang, python: p, arguments: {a: [1]}}", ["engine.arguments.a: [1] is not a text"]),
        ("loop.mode=async", ['loop.mode: must be sync or ahead, not "async": did you mean sync?']),
        ("rollout.samples_per_prompt=1", ["rollout.samples_per_prompt: must be at least 2, not 1"]),
        ("rollout.temperature=0", ["rollout.temperature: must be more than 0, not 0"]),
        ("name=Has Spaces", ['name: "Has Spaces" does not match', "lower-case letters, digits and dashes"]),
        (
            "problems.kind=geometry",
            ['problems: kind must be arithmetic, few_shot_addition or jsonl, not "geometry"'],
        ),
        ("problems.families=[sum, root]", ["problems.families.1: must be sum, product or remainder"]),
        ("problems={kind: jsonl, path: p, template: x}", ["problems.template", "write {problem} where"]),
        ("problems={kind: jsonl, path: p, held_out_fraction: 1}", ["problems.held_out_fraction"]),
        ("loop.mode=ahead", ['deterministic is true but loop.mode is "ahead"', 'set loop.mode "sync" or']),
        ("rollout.max_new_tokens=192", ["rollout.max_new_tokens 192", "raise engine.context_length"]),
        ("evaluation.max_new_tokens=192", ["evaluation.max_new_tokens 192", "raise engine.context_length"]),
        ("engine.router=nginx", ["engine.router: must be sglang"]),
        (
            "engine={kind: sglang, python: p, router: sglang, routed_experts: true}",
            ['router "sglang" drops the routed experts', "leave one of them out"],
        ),
        (
            "engine={kind: sglang, python: p, device: cpu, router: sglang}",
            ["deterministic is true but engine.router", "set deterministic false"],
        ),
        ("store.kind=tape", ["store: kind must be local or s3"]),
        ("store.kind=s3", ["store.bucket: missing: give it a value"]),
        ("store={kind: s3, bucket: My_Runs}", ["store.bucket", "does not match"]),
        ("store={kind: s3, bucket: runs, prefix: /a}", ["store.prefix", "does not match"]),
        (
            "store={kind: s3, bucket: runs, endpoint_url: minio}",
            ["store.endpoint_url", "does not match", "URL of the server"],
        ),
        ("store={kind: s3, bucket: runs, secret: x}", ["store.secret: unknown key"]),
        ("publish.transport=pigeon", ['publish.transport: kind must be one of "disk", "delta"']),
        ("publish.transport={kind: delta, miror: x}", ["publish.transport.miror: unknown key"]),
        ("publish.format=fp8", ["publish.format: must be fp8_block, fp8_channel"]),
        (
            "publish={format: fp8_channel}\nengine={kind: sglang, python: p}",
            ['publish.format "fp8_channel" is for engine.kind "embedded"'],
        ),
        (
            "publish={format: mxfp4}\nalgorithm.tis_cap=null",
            ["algorithm.tis_cap is off", "set algorithm.tis_cap 2"],
        ),
        (
            "algorithm.kind=ppo",
            ['algorithm: kind must be one of "dapo", or "package.module:Class" of your own'],
        ),
        ("algorithm.kind=my.module:Ppo", ["algorithm", '"my.module:Ppo" cannot be imported']),
        ("algorithm={kind: dapo, clip_low: 1}", ["algorithm.clip_low: must be less than 1"]),
        (
            "publish={format: fp8_block}\ngates.max_logprob_diff=1e-4",
            ["gates.max_logprob_diff 0.0001 is less than the 3 nats", "set it to those or more, or leave it"],
        ),
        (
            "engine.dtype=bfloat16\npublish.probe_tolerance=0.5",
            ["publish.prefix_tolerance 0.0001", "set both, to about 0.5"],
        ),
        ("trainer.adam_betas=[0.9, 1.0]", ["trainer", "adam_betas", "[0, 1)"]),
        ("loop.steps", ["--set", "write it as section.field=value"]),
        ("=3", ["--set", "write it as section.field=value"]),
        ("name.first=x", ["--set", "name is a value, not a section"]),
        ("loop.steps=[1", ["--set", "not a YAML value"]),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_field(preset, change, parts):
    message = error_of(preset, *change.splitlines())
    assert all(part in message for part in parts), message


def test_a_quantised_run_may_be_gated_from_what_its_format_explains(preset):
    load_config(preset, ["publish.format=fp8_block", "gates.max_logprob_diff=3"])
    load_config(preset, ["publish.format=fp8_block"])


def test_a_default_that_follows_from_a_wrong_field_is_not_told(preset):
    assert "probe_tolerance" not in error_of(preset, "publish.format=fp8")


def test_all_mistakes_are_told_at_once(preset):
    message = error_of(preset, "loop.steps=0", "rollout.sead=1")
    assert "loop.steps" in message and "rollout.sead" in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [("- a\n- b\n", "must be a mapping"), ("a: [1", "not YAML"), ("{}", "name: missing: give it a value")],
)
def test_files_that_are_no_config(tmp_path, text, reason):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    message = error_of(path)
    assert str(path) in message and reason in message


def test_a_missing_file(tmp_path):
    assert "nowhere.yaml: cannot be read" in error_of(tmp_path / "nowhere.yaml")


def test_override_changes_a_loaded_config_and_checks_it(preset):
    config = load_config(preset)
    changed = override(config, ["evaluation.samples=8"])
    assert changed.evaluation.samples == 8
    assert changed.model_copy(update={"evaluation": config.evaluation}) == config
    with pytest.raises(ConfigError, match=r"evaluation\.samples"):
        override(config, ["evaluation.samples=0"])


def test_configs_are_frozen(preset):
    config: RunConfig = load_config(preset)
    with pytest.raises(ValidationError, match="frozen"):
        config.loop.steps = 5  # type: ignore[misc]


def test_a_layout_is_told_from_another_by_its_first_field() -> None:
    layout = StateLayout(tensor_parallel=2, data_parallel=2, expert_parallel=4)
    assert layout.world_size == 4
    trainer = TrainerConfig(tensor_parallel=2, data_parallel=2, expert_parallel=4, learning_rate=1e-2)
    assert layout.differing(trainer) is None
    assert layout.differing(trainer.model_copy(update={"expert_parallel": 2})) == "expert_parallel"
    assert layout.differing(trainer.model_copy(update={"dtype": "bfloat16"})) == "dtype"
    with pytest.raises(ValueError, match="expert_parallel 3 does not divide"):
        StateLayout(tensor_parallel=2, expert_parallel=3)
