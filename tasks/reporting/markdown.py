"""Text of any kind in a page of Markdown."""

import re

_MARKUP = re.compile(r"([\\`*_\[\]<|~$&]|^[#>+-])")
_NUMBERED = re.compile(r"^(\d+)([.)])(?= |$)")


def plain(text: str) -> str:
    """Text that is shown as it is, on one line: nothing of it is markup or ends a table's cell."""
    line = _MARKUP.sub(r"\\\1", " ".join(text.split()))
    return _NUMBERED.sub(r"\1\\\2", line)


def table(rows: list[tuple[str, str]]) -> str:
    """A table of two columns without headings."""
    return "\n".join(["| | |", "|---|---|", *(f"| {plain(name)} | {plain(value)} |" for name, value in rows)])
