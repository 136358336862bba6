"""What published models declare, read; and what is written, as servers read it."""

from typing import Any

import pytest

from infra.quantisation.formats import FORMATS

MXFP4_NUMBER = {
    "ch_axis": -1,
    "dtype": "fp4",
    "group_size": 32,
    "is_scale_quant": False,
    "mx_element_dtype": None,
    "observer_cls": "PerBlockMXObserver",
    "qscheme": "per_group",
    "round_method": "half_even",
    "scale_calculation_mode": "even",
    "scale_format": "e8m0",
    "scale_type": "float",
    "symmetric": None,
}
CHANNELS: dict[str, Any] = {
    "actorder": None,
    "block_structure": None,
    "dynamic": False,
    "group_size": None,
    "num_bits": 8,
    "observer": "minmax",
    "observer_kwargs": {},
    "strategy": "channel",
    "symmetric": True,
}
TOKENS = {**CHANNELS, "dynamic": True, "strategy": "token", "observer": None}
DECLARED: dict[str, dict[str, Any]] = {
    "fp8_block": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    },
    "mxfp8": {"quant_method": "mxfp8", "activation_scheme": "dynamic", "ignored_layers": ["lm_head"]},
    **{
        name: {
            "config_groups": {
                "group_0": {
                    "input_activations": {**TOKENS, "type": kind},
                    "output_activations": None,
                    "targets": ["Linear"],
                    "weights": {**CHANNELS, "type": kind},
                }
            },
            "format": layout,
            "global_compression_ratio": 1.5,
            "ignore": ["lm_head"],
            "kv_cache_scheme": None,
            "quant_method": "compressed-tensors",
            "quantization_status": "frozen",
        }
        for name, kind, layout in (
            ("fp8_channel", "float", "float-quantized"),
            ("int8_channel", "int", "int-quantized"),
        )
    },
    "mxfp4": {
        "algo_config": None,
        "exclude": ["lm_head", "re:.*mlp.gate$"],
        "export": {
            "kv_cache_group": [],
            "min_kv_scale": 0.0,
            "pack_method": "reorder",
            "weight_format": "real_quantized",
            "weight_merge_groups": None,
        },
        "global_quant_config": {
            "bias": None,
            "input_tensors": {**MXFP4_NUMBER, "is_dynamic": True},
            "output_tensors": None,
            "target_device": None,
            "weight": {**MXFP4_NUMBER, "is_dynamic": False},
        },
        "layer_quant_config": {},
        "layer_type_quant_config": {},
        "quant_method": "quark",
        "quant_mode": "eager_mode",
        "softmax_quant_spec": None,
        "version": "0.11",
    },
}


@pytest.mark.parametrize("name", DECLARED)
def test_what_published_models_declare_is_recognised_by_one_format_only(name):
    schemes = {form.name: form.scheme for form in FORMATS.values() if form.scheme is not None}

    assert [key for key, scheme in schemes.items() if scheme.difference(DECLARED[name]) is None] == [name]


@pytest.mark.parametrize("name", DECLARED)
def test_what_is_written_is_recognised(name):
    scheme = FORMATS[name].scheme

    assert scheme.difference(scheme.write(["lm_head"])) is None


@pytest.mark.parametrize(
    ("name", "change", "difference"),
    [
        ("fp8_block", {"scale_fmt": "ue8m0"}, "scale_fmt = 'ue8m0'"),
        ("fp8_block", {"weight_block_size": None}, "weight_block_size = None"),
        ("fp8_block", {"activation_scheme": "static"}, "activation_scheme = 'static'"),
        ("mxfp8", {"weight_block_size": [1, 16]}, "weight_block_size = [1, 16]"),
        ("fp8_channel", {"format": "mixed-precision"}, "format = 'mixed-precision'"),
        ("fp8_channel", {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme = {'num_bits': 8}"),
        ("mxfp4", {"layer_quant_config": {"*q": {"bias": 1}}}, "layer_quant_config.*q = {'bias': 1}"),
    ],
)
def test_what_a_format_does_not_mean_is_told(name, change, difference):
    assert FORMATS[name].scheme.difference({**DECLARED[name], **change}) == difference


@pytest.mark.parametrize(
    ("name", "entry", "module", "kept"),
    [
        ("fp8_block", "mlp.gate", "model.layers.0.mlp.gate", True),
        ("fp8_block", "mlp.gate", "model.layers.0.mlp.gate_proj", False),
        ("fp8_block", "model.layers.1", "model.layers.1.mlp.up_proj", True),
        ("fp8_block", "model.layers.1", "model.layers.11.mlp.up_proj", False),
        ("fp8_channel", "self_attn.q_proj", "model.layers.0.self_attn.q_proj", True),
        ("fp8_channel", "model.layers.0.mlp", "model.layers.0.mlp.up_proj", False),
        ("int8_channel", "re:.*self_attn", "model.layers.0.self_attn.q_proj", True),
        ("mxfp4", "re:model.layers.61.*", "model.layers.61.mlp.up_proj", True),
        ("mxfp4", "re:self_attn", "model.layers.61.self_attn.q_proj", False),
    ],
)
def test_modules_are_named_by_the_rules_of_the_method(name, entry, module, kept):
    scheme = FORMATS[name].scheme
    declaration = {**scheme.declaration, scheme.ignore_keys[-1]: [entry]}

    assert (module in scheme.kept(declaration)) is kept


@pytest.mark.parametrize("name", DECLARED)
def test_written_modules_are_kept_and_no_others(name):
    scheme = FORMATS[name].scheme
    kept = scheme.kept(scheme.write(["lm_head", "mlp.gate"]))

    assert "lm_head" in kept
    assert "model.layers.3.mlp.gate" in kept
    assert "model.layers.3.mlp.gate_proj" not in kept
    assert "model.layers.3.mlp.experts.0.gate_proj" not in kept
