"""Text in a page of Markdown, read by a parser of it."""

import pytest
from markdown_it import MarkdownIt

from tasks.reporting.markdown import plain, table

PARSER = MarkdownIt().enable("table")
TEXTS = [
    "max |trainer - rollout| logprob",
    "two\n\nlines",
    "# no *heading* `|` <b>",
    "-> a\\|b",
    "12. x_y_z",
    "| |",
    "a ~~b~~ &lt;",
]


def cells(text: str) -> list[str]:
    tokens = PARSER.parse(text)
    return [
        "".join(child.content for child in tokens[at + 1].children or [])
        for at, token in enumerate(tokens)
        if token.type == "td_open"
    ]


def test_every_text_is_a_cell_of_a_table_as_it_is() -> None:
    rows = [(text, text) for text in TEXTS]
    assert cells(table(rows)) == [" ".join(text.split()) for text in TEXTS for _ in range(2)]


@pytest.mark.parametrize("text", TEXTS)
def test_plain_text_is_one_paragraph_without_markup(text: str) -> None:
    opened, inline, closed = PARSER.parse(plain(text))
    assert (opened.type, closed.type) == ("paragraph_open", "paragraph_close")
    assert {child.type for child in inline.children or []} <= {"text", "text_special"}
