import pytest
import torch
from safetensors.torch import load_file, save_file

from infra.quantisation.errors import QuantisationError
from infra.quantisation.formats import FORMATS, Scaled
from infra.quantisation.recipe import QuantisationRecipe

LAYER = "model.layers.1."
QUANTISED = {
    f"{LAYER}self_attn.q_a_proj.weight": (48, 64),
    f"{LAYER}self_attn.kv_b_proj.weight": (160, 32),
    f"{LAYER}mlp.experts.0.gate_proj.weight": (32, 64),
    f"{LAYER}mlp.experts.11.down_proj.weight": (64, 32),
    f"{LAYER}mlp.shared_experts.up_proj.weight": (32, 64),
}
KEPT = {
    "model.embed_tokens.weight": (96, 64),
    f"{LAYER}input_layernorm.weight": (64,),
    f"{LAYER}self_attn.q_proj.bias": (64,),
    f"{LAYER}mlp.gate.weight": (12, 64),
    f"{LAYER}mlp.shared_expert_gate.weight": (1, 64),
    "model.layers.2.block_sparse_moe.gate.weight": (12, 64),
    "model.layers.61.embed_tokens.weight": (96, 64),
    "model.layers.61.eh_proj.weight": (64, 128),
    "model.layers.61.shared_head.head.weight": (96, 64),
    "model.norm.weight": (64,),
    "lm_head.weight": (96, 64),
}
BIAS = f"{LAYER}mlp.gate.e_score_correction_bias"
ROUTES = f"{LAYER}mlp.routes"
every = pytest.mark.parametrize("name", FORMATS)
scaled = pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.scheme is not None])


@pytest.fixture
def masters() -> dict[str, torch.Tensor]:
    """The trainer's fp32 weights."""
    random = torch.Generator().manual_seed(0)
    shapes = {**QUANTISED, **KEPT, BIAS: (12,)}
    weights = {name: torch.randn(*shape, generator=random) for name, shape in shapes.items()}
    return {**weights, ROUTES: torch.arange(6)}


def recipe_for(name: str | None, **config) -> QuantisationRecipe:
    return QuantisationRecipe.of(config, name, torch.bfloat16)


def scaled_suffix(recipe: QuantisationRecipe) -> str:
    assert isinstance(recipe.format, Scaled)
    return recipe.format.suffix


def own(name: str, **fields) -> dict:
    return {**FORMATS[name].scheme.write(["lm_head"]), **fields}


@scaled
def test_linear_layers_are_quantised_and_nothing_else(masters, name):
    recipe = recipe_for(name)

    written = dict(recipe.apply(masters.items()))

    ends = recipe.format.dtypes
    assert written.keys() == {*KEPT, BIAS, ROUTES, *(weight + end for weight in QUANTISED for end in ends)}
    assert all(written[weight + end].dtype == ends[end] for weight in QUANTISED for end in ends)
    assert {written[kept].dtype for kept in KEPT} == {torch.bfloat16}
    assert torch.equal(written[BIAS], masters[BIAS])
    assert torch.equal(written[ROUTES], masters[ROUTES])


@every
def test_tensors_come_as_announced_and_scales_right_after_their_weight(masters, name):
    recipe = recipe_for(name)

    announced = [
        (part, *form)
        for tensor, value in masters.items()
        for part, form in recipe.forms(tensor, value.dtype, tuple(value.shape)).items()
    ]

    written = [(part, value.dtype, tuple(value.shape)) for part, value in recipe.apply(masters.items())]
    assert written == announced


@every
def test_an_engine_gets_the_weights_back_from_a_file(masters, name, tmp_path):
    recipe = recipe_for(name)
    save_file(dict(recipe.apply(masters.items())), tmp_path / "model.safetensors")

    served = dict(recipe.restore(load_file(tmp_path / "model.safetensors").items()))

    assert served.keys() == masters.keys()
    for weight in QUANTISED:
        expected = recipe.format.dequantise(recipe.format.quantise(masters[weight]))
        assert torch.equal(served[weight], expected)
    assert torch.equal(served["lm_head.weight"], masters["lm_head.weight"].to(recipe.dtype).float())
    assert torch.equal(served[BIAS], masters[BIAS])
    assert torch.equal(served[ROUTES], masters[ROUTES])


@scaled
def test_parts_may_come_in_any_order(masters, name):
    recipe = recipe_for(name)
    written = list(recipe.apply(masters.items()))

    forwards, backwards = dict(recipe.restore(written)), dict(recipe.restore(reversed(written)))

    assert all(torch.equal(forwards[tensor], backwards[tensor]) for tensor in masters)


def test_one_weight_at_a_time_is_held(masters):
    taken = []

    def watched():
        for tensor in masters.items():
            taken.append(tensor[0])
            yield tensor

    recipe = recipe_for("fp8_block")
    first, _ = next(recipe.restore(recipe.apply(watched())))

    assert taken == [first] == [next(iter(masters))]


def test_what_the_model_keeps_in_high_precision_stays_so(masters):
    declared = own("fp8_block", modules_to_not_convert=["self_attn.kv_b_proj", f"{LAYER}mlp.experts.0"])
    written = dict(recipe_for(None, quantization_config=declared).apply(masters.items()))

    assert written[f"{LAYER}self_attn.kv_b_proj.weight"].dtype == torch.bfloat16
    assert written[f"{LAYER}mlp.experts.0.gate_proj.weight"].dtype == torch.bfloat16
    assert written[f"{LAYER}mlp.experts.11.down_proj.weight"].dtype == torch.float8_e4m3fn
    assert written[f"{LAYER}mlp.gate.weight"].dtype == torch.bfloat16


@scaled
def test_a_model_s_own_format_is_taken_and_its_declaration_kept(name):
    config = {"model_type": "llama", "quantization_config": own(name, version="1.2")}

    recipe = recipe_for(None, **config)

    assert recipe.format.name == name
    assert recipe.config(config) == {**config, "dtype": "bfloat16"}


@scaled
def test_config_declares_the_format_and_leaves_the_rest(name):
    config = {"model_type": "llama", "torch_dtype": "float32"}

    written = recipe_for(name).config(config)

    declaration = written.pop("quantization_config")
    assert written == {"model_type": "llama", "dtype": "bfloat16"}
    assert recipe_for(None, quantization_config=declaration).format.name == name


@pytest.mark.parametrize(("name", "dtype"), [("bfloat16", "bfloat16"), ("float32", "float32")])
def test_a_plain_copy_of_a_quantised_model_declares_nothing(name, dtype):
    config = {"quantization_config": own("mxfp4")}

    assert recipe_for(name, **config).config(config) == {"dtype": dtype}


def test_a_model_without_declaration_is_plain():
    assert recipe_for(None).format.name == "bfloat16"


def test_another_format_than_the_model_s_own_is_refused():
    declared = own("fp8_block", scale_fmt="ue8m0")

    with pytest.raises(QuantisationError, match="not fp8_block, it has scale_fmt = 'ue8m0'"):
        recipe_for("fp8_block", quantization_config=declared)
    with pytest.raises(QuantisationError, match=r"none of the formats .*: ask for bfloat16 or float32"):
        recipe_for(None, quantization_config=declared)


def test_an_unknown_format_is_told_with_the_known_ones():
    with pytest.raises(
        QuantisationError, match='"fp8" is no number format: use one of bfloat16, float32, fp8_block'
    ):
        recipe_for("fp8")


@scaled
def test_a_weight_that_cannot_be_quantised_is_named(masters, name):
    weight = f"{LAYER}mlp.experts.0.gate_proj.weight"
    masters[weight][5, 7] = float("nan")

    with pytest.raises(QuantisationError, match=f"{weight}: holds NaN, infinity"):
        list(recipe_for(name).apply(masters.items()))


@every
def test_a_tensor_in_high_precision_that_is_not_finite_is_named(masters, name):
    masters["model.norm.weight"][3] = float("inf")

    with pytest.raises(QuantisationError, match=r"model.norm.weight: holds NaN, infinity"):
        list(recipe_for(name).apply(masters.items()))


@scaled
@pytest.mark.parametrize("end", [0, 1])
def test_a_part_in_another_dtype_is_named_with_both_dtypes(masters, name, end):
    recipe = recipe_for(name)
    written = dict(recipe.apply(masters.items()))
    end, expected = list(recipe.format.dtypes.items())[end]
    part = f"{LAYER}self_attn.q_a_proj.weight{end}"
    written[part] = written[part].to(torch.float16)

    with pytest.raises(QuantisationError, match=f"{part} is torch.float16 where {expected} is expected"):
        list(recipe.restore(written.items()))


@scaled
def test_an_engine_of_another_format_is_told_which_tensor_does_not_fit(masters, name):
    written = dict(recipe_for("bfloat16").apply(masters.items()))
    weight = next(iter(QUANTISED))

    with pytest.raises(QuantisationError, match=f"{weight} is torch.bfloat16 where"):
        list(recipe_for(name).restore(written.items()))


@scaled
def test_missing_scales_are_named(masters, name):
    recipe = recipe_for(name)
    written = dict(recipe.apply(masters.items()))
    scale = f"{LAYER}self_attn.kv_b_proj.weight{scaled_suffix(recipe)}"
    del written[scale]

    with pytest.raises(QuantisationError, match=f"{scale} is missing"):
        list(recipe.restore(written.items()))


@scaled
def test_scales_of_what_is_not_quantised_are_named(masters, name):
    recipe = recipe_for(name)
    scale = f"lm_head.weight{scaled_suffix(recipe)}"

    with pytest.raises(QuantisationError, match=f"{scale}: a scale, though lm_head.weight stays"):
        list(recipe.restore([(scale, torch.ones(1, 1))]))
