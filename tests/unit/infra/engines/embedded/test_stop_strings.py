"""Finding the stop string that the newest token completed."""

from pathlib import Path

import pytest

from infra.engines.embedded.text import TextCodec
from tests.support.engines import TINY_MODEL


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return TextCodec.load(TINY_MODEL)


@pytest.mark.parametrize(
    ("text", "stops", "found"),
    [
        ("12 + 7 = 19\n", ("\n",), "\n"),
        ("12 + 7 = 19", ("\n", "= 19"), "= 19"),
        ("a long text before it, so that only its tail is read: END", ("END",), "END"),
        ("a stop is found in the tail only, END and far behind it the text goes on", ("END",), None),
        ("price: 5€", ("€",), "€"),
        ("€€€€", ("x",), None),
    ],
)
def test_stops_are_found_in_the_tail(
    codec: TextCodec, text: str, stops: tuple[str, ...], found: str | None
) -> None:
    assert codec.find_stops([codec.encode(text)], [stops]) == [found]


def test_each_output_has_its_own_stops(codec: TextCodec) -> None:
    outputs = [codec.encode("1 = 1"), codec.encode("1 = 2")]
    assert codec.find_stops(outputs, [("2",), ("3", "2")]) == [None, "2"]


def test_text_survives_encoding(codec: TextCodec) -> None:
    assert codec.decode([codec.encode("12 x 3 = 36")]) == ["12 x 3 = 36"]


def test_a_folder_without_tokenizer_serves_tokens_only(tmp_path: Path) -> None:
    codec = TextCodec.load(tmp_path)
    assert not codec.available
    assert codec.decode([[1], [2]]) == ["", ""]
