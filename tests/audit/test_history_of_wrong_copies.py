"""What an audit keeps of copies that differ, and what it says when they were replaced."""

from pathlib import Path

import pytest

from dledger_audit.history.chunks import CHUNK
from dledger_formats.audit import Verdict
from dledger_logs.histories import with_other_body
from dledger_logs.layout import Log
from dledger_logs.write import write_log
from dledger_scan.audited import CHUNKS, ENTRIES, NAMES, SHAPE, Audited, copied


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return write_log(tmp_path_factory.mktemp("sound") / "log", ENTRIES, SHAPE)


@pytest.fixture
def group(sound: Log, tmp_path: Path) -> Audited:
    return Audited({name: copied(sound, tmp_path / name) for name in NAMES})


def test_a_member_that_differed_and_was_rebuilt_is_sound_again(
    group: Audited, sound: Log, tmp_path: Path
) -> None:
    """Nor does a copy count as known whose entries agree after others that differ."""
    odd = write_log(tmp_path / "odd", with_other_body(ENTRIES, 3 * CHUNK + 7), SHAPE)
    group.logs = {**group.logs, "n2": odd}
    for since_last in (False, True):
        assert group.audit(since_last=since_last)[0] is Verdict.DIVERGED
    assert group.history.chunks("n2").tolist() == [0, CHUNK, 2 * CHUNK]
    assert len(group.history.chunks("n0")) == CHUNKS

    group.logs, group.life["n2"] = {**group.logs, "n2": sound}, "b"

    assert group.audit(since_last=True) == (Verdict.SOUND, set())
    assert len(group.history.chunks("n2")) == CHUNKS


def test_a_wrong_copy_that_was_known_before_the_right_ones_may_be_replaced(
    group: Audited, sound: Log, tmp_path: Path
) -> None:
    odd = write_log(tmp_path / "odd", with_other_body(ENTRIES, 3 * CHUNK + 7), SHAPE)
    logs = group.logs
    group.logs = {"n2": odd}
    group.audit()
    group.logs = {**logs, "n2": odd}
    assert group.audit()[0] is Verdict.DIVERGED
    group.logs = {**logs, "n2": sound}

    for _ in range(2):
        assert group.audit() == (Verdict.SOUND, set())

    group.logs = {**logs, "n2": odd}
    assert ("history_changed", "n2", 3 * CHUNK, CHUNKS * CHUNK - 1) in group.audit()[1]


def test_copies_that_differ_without_a_majority_are_not_remembered(
    group: Audited, sound: Log, tmp_path: Path
) -> None:
    odd = write_log(tmp_path / "odd", with_other_body(ENTRIES, 7), SHAPE)
    group.logs = {"n0": sound, "n1": odd}
    assert group.audit()[0] is Verdict.DIVERGED
    assert len(group.history.rows) == 0

    group.logs = {"n0": sound, "n1": sound}
    assert group.audit() == (Verdict.SOUND, set())


def test_a_majority_that_changed_stays_found_though_the_others_took_its_entries(
    group: Audited, tmp_path: Path
) -> None:
    group.audit()
    log = write_log(tmp_path / "changed", with_other_body(ENTRIES, 3 * CHUNK + 7), SHAPE)
    last = CHUNKS * CHUNK - 1
    for changed in (("n0", "n1"), NAMES):
        group.logs = {**group.logs, **dict.fromkeys(changed, log)}

        _, found = group.audit()

        named = {each for each in found if each[0] == "history_changed"}
        assert named == {("history_changed", name, 3 * CHUNK, last) for name in changed}
