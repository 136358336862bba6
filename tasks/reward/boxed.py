r"""Finding `\boxed{...}` in a response."""

import re

_TOKEN = re.compile(r"(\\boxed\s*\{)|\\[{}]|([{}])")


def extract_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}` whose braces balance, or None when there is none.

    Last is the one that opens last; a box that the text never closes is passed over. Escaped braces
    (`\{`, `\}`) do not count. One pass over the text, whatever it nests.
    """
    opened: list[tuple[int, bool]] = []  # content start and whether a box, for each open brace
    last = (-1, -1)
    for token in _TOKEN.finditer(text):
        box, brace = token.groups()
        if box or brace == "{":
            opened.append((token.end(), box is not None))
        elif brace == "}" and opened:
            start, is_box = opened.pop()
            if is_box and start > last[0]:
                last = (start, token.start())
    return text[last[0] : last[1]] if last[0] >= 0 else None
