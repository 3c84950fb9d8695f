"""A small part of the campaign of planted faults and sound groups; `dledger_scan.campaign` runs it
at any length.
"""

import pytest

from dledger_scan.campaign import KINDS, fault, sound

SEED = 1


@pytest.mark.parametrize("number", range(len(KINDS)), ids=lambda number: KINDS[number])
def test_a_planted_fault_of_each_kind_is_named(number: int) -> None:
    kind, wrong = fault(number, SEED)

    assert kind == KINDS[number]
    assert not wrong


@pytest.mark.parametrize("number", range(15))
def test_a_sound_group_has_no_finding_above_info(number: int) -> None:
    assert not sound(number, SEED)
