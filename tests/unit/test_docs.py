"""docs/architecture.md describes the folders that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^( *)([a-z0-9_]+)/(?: |$)")


def drawn() -> set[str]:
    """The folders of the drawing under "The house"."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    drawing = page.partition("## The house")[2].split("```")[1]
    folders: set[str] = set()
    above: list[str] = []
    for line in drawing.splitlines():
        if match := LINE.match(line):
            above = [*above[: len(match[1]) // 2], match[2]]
            folders.add("/".join(above))
    return folders


def test_the_drawing_has_every_folder_of_the_product_and_no_other() -> None:
    packages = [
        path.parent.relative_to(ROOT).as_posix()
        for top in ("flows", "tasks", "infra", "configs")
        for path in (ROOT / top).rglob("*.py")
        if "overnight_sglang_cpu" not in path.parts
    ]
    assert drawn() == {*packages, "configs/models", "infra/deploy", "infra/engines/sglang_cpu"}


def test_paths_that_the_pages_name_are_there() -> None:
    for page in ("docs/architecture.md", "docs/contributing.md", "README.md"):
        for path in re.findall(
            r"`((?:tasks|infra|configs|flows|tests)/[\w./-]+)`", (ROOT / page).read_text()
        ):
            assert (ROOT / path).exists(), f"{page} names {path}"
