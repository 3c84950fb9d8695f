"""`tries.txt`, which `tries.py` writes, shows what a person sees when `dledger` goes wrong."""

import io
from pathlib import Path

import pytest

from tests.client.tries import Place, show_what_repeats
from tools.groups.node_group import NodeGroup

TABLE = Path(__file__).with_name("tries.txt").read_text()
FIRST_THAT_VARIES = "\n## The leader is frozen, and no other is asked\n"


def test_the_table_has_sixty_tries_and_no_internal_error() -> None:
    assert TABLE.count("$ dledger ") >= 60
    assert "internal error" not in TABLE
    assert "Traceback" not in TABLE


@pytest.mark.group
def test_the_tries_still_say_what_the_table_says(tmp_path: Path) -> None:
    """After a change that is meant, run `tries.py`, and read the difference.

    With an unwell group, messages name what was tried last, which differs from run to run.
    """
    out = io.StringIO()
    (tmp_path / "three").mkdir()
    with NodeGroup(tmp_path / "three") as group:
        show_what_repeats(Place(tmp_path, out), group)

    kept, mark, _ = TABLE.partition(FIRST_THAT_VARIES)
    assert mark
    assert tries_of(out.getvalue()) == tries_of(kept)


def tries_of(text: str) -> dict[tuple[str, str], str]:
    """Return what each try printed, by its section and command line."""
    found: dict[tuple[str, str], str] = {}
    for section in text.split("\n## ")[1:]:
        title, _, rest = section.partition("\n")
        for one in rest.split("$ dledger ")[1:]:
            command, _, printed = one.partition("\n")
            found[title, command] = printed.rstrip()
    return found
