"""A small part of the campaign of planted faults and sound groups; `dledger_scan.campaign` runs it
at any length.
"""

from dataclasses import replace

import pytest

from dledger_formats.audit import Finding
from dledger_scan.campaign import KINDS, Fault, fault, is_named, sound

SEED = 1
FAULT = Fault("n1", 20, 24, "0" * 20)
NAMED = Finding(
    check="bad_body_crc", severity="critical", member="n1", segment=FAULT.segment, first_index=20,
    last_index=24, detail="",
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(KINDS)), ids=lambda number: KINDS[number])
def test_a_planted_fault_of_each_kind_is_named(number: int) -> None:
    kind, wrong = fault(number, SEED)

    assert kind == KINDS[number]
    assert not wrong


@pytest.mark.parametrize("number", range(15))
def test_a_sound_group_has_no_finding_above_info(number: int) -> None:
    assert not sound(number, SEED)


@pytest.mark.parametrize(("first", "last"), [(20, 24), (22, 22), (19, 24), (20, 25)])
def test_a_finding_names_a_fault_by_its_entries_and_at_most_one_more(first: int, last: int) -> None:
    assert is_named([replace(NAMED, first_index=first, last_index=last)], FAULT)


@pytest.mark.parametrize(
    "change",
    [
        {"member": "n0"},
        {"member": ""},
        {"segment": ""},
        {"segment": f"{4096:020}"},
        {"severity": "info"},
        {"last_index": 26},
        {"first_index": 0},
        {"first_index": 10, "last_index": 15},
    ],
)
def test_a_finding_that_is_vague_or_of_another_place_names_no_fault(
    change: dict[str, str | int],
) -> None:
    assert not is_named([replace(NAMED, **change)], FAULT)  # type: ignore[arg-type]
