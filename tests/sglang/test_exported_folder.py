"""A real SGLang server loads exported folders as they are."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from configs.engine import SGLangEngine
from tasks.publishing.export import convert
from tasks.publishing.layout import differences
from tasks.record.manifest import Manifest
from tests.support.engines import SGLANG_PYTHON, TINY_MODEL, reference_logprobs, running_engine

SEQUENCE = [1, 40, 41, 42, 43, 44]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_name", "dtype", "most"),
    [(None, "float32", 1e-5), ("bfloat16", "bfloat16", 0.05)],
    ids=["as-it-is", "bfloat16"],
)
def test_it_holds_what_was_exported(format_name: str | None, dtype: str, most: float, tmp_path: Path) -> None:
    held = Manifest.of(load_file(TINY_MODEL / "model.safetensors"))
    (tmp_path / "exported").mkdir()
    manifest = convert(TINY_MODEL, held, tmp_path / "exported", format_name)
    config = SGLangEngine.model_validate(
        {"kind": "sglang", "python": SGLANG_PYTHON, "device": "cpu", "dtype": dtype, "max_total_tokens": 4096}
    )
    with running_engine(config, tmp_path / "exported", tmp_path / "engine.log") as served:
        assert [differences(lambda: served.folder, manifest, rank) for rank in served.client.checksums()] == [
            []
        ]
        scored = served.client.score([SEQUENCE])[0]
    assert scored == pytest.approx(reference_logprobs(tmp_path / "exported", SEQUENCE).tolist(), abs=most)
