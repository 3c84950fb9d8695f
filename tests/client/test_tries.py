"""`tries.txt`, which `tries.py` writes, shows what a person sees when `dledger` goes wrong."""

import io
import re
from pathlib import Path

import pytest

from dledger_client.sync import BlockingClient
from tests.client.tries import Place, show_what_is_full, show_what_repeats, show_what_varies
from tools.groups.node_group import NodeGroup

TABLE = Path(__file__).with_name("tries.txt").read_text()
FULL = "\n## The volume of a single member is full\n"
FIRST_THAT_VARIES = "\n## The leader is frozen, and no other is asked\n"


def test_the_table_has_sixty_tries_and_no_internal_error() -> None:
    assert TABLE.count("$ dledger ") >= 60
    assert "internal error" not in TABLE
    assert "Traceback" not in TABLE


@pytest.mark.group
@pytest.mark.sampled(1, among="tries")
def test_the_tries_still_say_what_the_table_says(tmp_path: Path) -> None:
    """After a change that is meant, run `tries.py`, and read the difference."""
    out = io.StringIO()
    (tmp_path / "three").mkdir()
    with NodeGroup(tmp_path / "three") as group:
        show_what_repeats(Place(tmp_path, out), group)

    kept, mark, _ = TABLE.partition(FIRST_THAT_VARIES)
    assert mark
    assert tries_of(without_waits(out.getvalue())) == tries_of(without_waits(kept))


@pytest.mark.group
@pytest.mark.sampled(1, among="tries")
def test_tries_on_an_unwell_group_end_as_the_table_says(tmp_path: Path) -> None:
    """What was tried last differs from run to run, and what members say of themselves."""
    out = io.StringIO()
    (tmp_path / "three").mkdir()
    with NodeGroup(tmp_path / "three") as group:
        with BlockingClient(",".join(group.peers.values()), "g") as client:
            client.append_batch([b"hello", b"world"])
        place = Place(tmp_path, out)
        place.keep_export(group)
        show_what_varies(place, group)

    _, mark, varies = TABLE.partition(FIRST_THAT_VARIES)
    assert without_causes(out.getvalue()) == without_causes(mark + varies.partition(FULL)[0])


@pytest.mark.group
@pytest.mark.sampled(1, among="tries")
def test_tries_on_a_full_group_end_as_the_table_says(tmp_path: Path) -> None:
    out = io.StringIO()
    show_what_is_full(Place(tmp_path, out))

    _, mark, full = TABLE.partition(FULL)
    assert without_causes(out.getvalue()) == without_causes(mark + full)


def without_waits(text: str) -> str:
    """Leave out the lines of waits: on a busy machine, a try may end before its line is due."""
    return re.sub(r"(?m)^ +dledger: waiting for group .*\n", "", text)


def without_causes(text: str) -> dict[tuple[str, str], list[str]]:
    """Return the lines of each try but those of a wait, which depend on the time, and no causes.

    The lines are sorted, because `status` lists members by name and any of them may lead.
    """
    text = without_waits(text)
    text = re.sub(r"(last errors?|not ready): .*", r"\1: CAUSE", text)
    text = re.sub(r"(?m)^    nX  .*", "    nX", text)
    return {
        tried: sorted(" ".join(line.split()) for line in printed.splitlines())
        for tried, printed in tries_of(text).items()
    }


def tries_of(text: str) -> dict[tuple[str, str], str]:
    """Return what each try printed, by its section and command line."""
    found: dict[tuple[str, str], str] = {}
    for section in text.split("\n## ")[1:]:
        title, _, rest = section.partition("\n")
        for one in rest.split("$ dledger ")[1:]:
            command, _, printed = one.partition("\n")
            found[title, command] = printed.rstrip()
    return found
