"""Every link of the documentation leads to a file and a heading that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def headings(page: Path) -> Iterator[str]:
    """Yield the anchors of a page's headings, as GitHub makes them."""
    in_code = False
    for line in page.read_text().splitlines():
        in_code ^= line.startswith("```")
        heading = re.match(r"#+ (.*)", line)
        if heading and not in_code:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1].strip().lower())
            yield re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_heading_that_exists(page: Path) -> None:
    wrong = []
    for target in LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        other = (page.parent / path) if path else page
        if re.match(r"[a-z]+:", target):
            continue
        if not other.exists() or (anchor and anchor not in headings(other)):
            wrong.append(target)
    assert not wrong
