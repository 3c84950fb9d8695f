"""docs/safety.md names a test for every claim; these tests check that the named tests exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = (TESTS.parent / "docs" / "safety.md").read_text()
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| (?!---|Claim |\| )", line)]
NAMED = sorted(set(re.findall(r"`(\w+/[\w/.]+(?:::\w+)?)`", PAGE)))
UPSTREAM_FAILURE_COUNT = 34


@pytest.mark.parametrize("named", NAMED)
def test_every_named_test_exists(named: str) -> None:
    file, _, name = named.partition("::")
    text = (TESTS / file).read_text()

    if file.endswith(".txt"):
        assert "\n> " in text, "a transcript needs at least one step"
    else:
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{named} does not exist"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_row_names_a_test(row: str) -> None:
    assert any(f"`{named}`" in row for named in NAMED)


def test_every_upstream_failure_has_a_row() -> None:
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]

    assert numbers == list(range(1, UPSTREAM_FAILURE_COUNT + 1))
    assert len(NAMED) > UPSTREAM_FAILURE_COUNT
