"""The bits of the column `flags` are those of the page."""

import re
from pathlib import Path

from pyspark_dledger.layout import Flag

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
ROW = re.compile(r"^\| (\d+) \| `([A-Z_]+)` \| \S", re.MULTILINE)


def test_the_page_has_every_bit_of_the_flags_with_its_name() -> None:
    assert ROW.findall(PAGE.read_text()) == [(str(flag.value), flag.name) for flag in Flag]
