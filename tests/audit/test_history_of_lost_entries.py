"""Entries that were committed and are gone are told by each audit, until they are back."""

from dataclasses import replace
from typing import Any

import pytest

from dledger_formats.audit import Verdict
from dledger_logs.layout import Log
from dledger_logs.write import write_log
from dledger_scan.audited import COUNT, ENTRIES, NAMES, SHAPE, Audited, Change

LOST = 4000


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return write_log(tmp_path_factory.mktemp("sound") / "log", ENTRIES, SHAPE)


@pytest.fixture
def group(sound: Log) -> Audited:
    return Audited(dict.fromkeys(NAMES, sound))


def says(**other: Any) -> Change:
    return lambda said: replace(said, status=replace(said.status, **other))


def ends_with(index: int) -> Change:
    return says(ledger_end_index=index, committed_index=index)


def test_a_loss_that_all_members_have_alike_is_told_until_it_is_mended(group: Audited) -> None:
    group.audit()
    group.change = dict.fromkeys(NAMES, ends_with(COUNT - 1 - LOST))
    told = {("history_lost", name, COUNT - LOST, COUNT - 1) for name in NAMES}

    assert group.audit() == (Verdict.DAMAGED, told)
    assert group.audit() == (Verdict.DAMAGED, told)
    assert group.audit(since_last=True) == (Verdict.DAMAGED, told)

    group.change = {}
    assert group.audit() == (Verdict.SOUND, set())


def test_a_loss_after_a_restart_that_lowered_the_commit_is_told(group: Audited) -> None:
    group.audit()
    group.committed["n1"], group.life["n1"] = 500, "b"
    assert group.audit() == (Verdict.SOUND, set())
    group.change["n1"] = ends_with(600)

    assert ("history_lost", "n1", 601, COUNT - 1) in group.audit()[1]


def test_a_loss_of_a_member_that_joined_meanwhile_is_told(group: Audited) -> None:
    group.audit()
    joins = says(ledger_begin_index=-1, ledger_end_index=-1, committed_index=-1, term=0)
    group.change["n1"] = lambda said: replace(
        joins(said), status=replace(joins(said).status, joining=True), data=[]
    )
    group.audit()
    group.change["n1"] = ends_with(600)

    assert ("history_lost", "n1", 601, COUNT - 1) in group.audit()[1]


def test_a_term_that_went_back_is_told_until_it_is_reached_again(group: Audited) -> None:
    group.audit()
    group.change["n2"] = says(term=900)
    for _ in range(2):
        assert group.audit() == (Verdict.DAMAGED, {("history_term", "n2", -1, -1)})

    group.change = {}
    assert group.audit() == (Verdict.SOUND, set())
