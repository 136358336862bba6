"""Reading an integer as people and models write it."""

import re

_LONGEST = 200  # characters; keeps the unwrapping below cheap on hostile input
_INT64_MAX = 2**63 - 1

_REWRITTEN = (
    ("−", "-"),  # the Unicode minus sign
    ("{,}", ","),
    (r"\!", ""),
    (r"\$", ""),
    *((space, " ") for space in (r"\,", r"\;", r"\:", "\\ ", "~")),
)
_LABEL = re.compile(r"[A-Za-z]+\s*[:=]\s*(.+)", re.DOTALL)
_UNIT = re.compile(
    r"(.+?)\s*(?:\\(?:text|textrm|mathrm)\{[A-Za-z\s.]+\}|\^\s*(?:\\circ|\{\s*\\circ\s*\}))", re.DOTALL
)
_WRAPPED = re.compile(
    r"\\(?:text|textbf|textrm|mathrm|mathbf)\s*\{(.*)\}|\{(.*)\}|\$(.*)\$|\\\((.*)\\\)|\*\*(.*)\*\*",
    re.DOTALL,
)
_INTEGER = re.compile(r"([+-]?)\s*([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+|[0-9]+)(?:\.0*)?")


def read_integer(text: str) -> int | None:
    r"""The integer that the whole text stands for, or None when it is anything else.

    Understood: surrounding spaces, a sign (`-`, `+` or the Unicode minus), leading zeros (`025`), groups
    of three (`1,234`, `1{,}234`, `1\,234`, `1 234`), a fraction of zeros (`13.0`, `13.`), one label before
    (`x = 13`, `Answer: 13`), a unit (`\$13`, `10\text{ cm}`, `60^\circ`) and the wrappings `\text{13}`,
    `\mathbf{13}`, `{13}`, `$13$`, `\(13\)` and `**13**`. Nothing is computed: `26/2`, `\frac{26}{2}`, `50\%`,
    lists and other fractions are None, and so is what does not fit in 64 bits.
    """
    if len(text) > _LONGEST:
        return None
    for written, meant in _REWRITTEN:
        text = text.replace(written, meant)
    text = _unwrap(text)
    if label := _LABEL.fullmatch(text):
        text = _unwrap(label[1])
    if unit := _UNIT.fullmatch(text):
        text = _unwrap(unit[1])
    number = _INTEGER.fullmatch(text)
    if number is None:
        return None
    value = int(number[1] + re.sub("[ ,]", "", number[2]))
    return value if abs(value) <= _INT64_MAX else None


def _unwrap(text: str) -> str:
    text = text.strip()
    while match := _WRAPPED.fullmatch(text):
        text = next(inner for inner in match.groups() if inner is not None).strip()
    return text
