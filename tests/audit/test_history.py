"""What an audit keeps for the next one, and what it finds by it."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dledger_audit.history.chunks import CHUNK
from dledger_audit.history.history_file import (
    FILE,
    PARTS,
    History,
    HistoryError,
    load,
    locked,
    save,
)
from dledger_audit.main import main
from dledger_audit.places import HADOOP_LOCK_FILE
from dledger_formats.audit import AuditFailure, ExitCode, Verdict
from dledger_formats.http.status import Manifest
from dledger_logs import damage
from dledger_logs.histories import with_other_body
from dledger_logs.layout import Log
from dledger_logs.write import write_log
from dledger_scan.audited import CHUNKS, COUNT, ENTRIES, NAMES, SHAPE, Audited, Change, copied


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return write_log(tmp_path_factory.mktemp("sound") / "log", ENTRIES, SHAPE)


@pytest.fixture
def group(sound: Log, tmp_path: Path) -> Audited:
    return Audited({name: copied(sound, tmp_path / name) for name in NAMES})


def test_an_audit_of_the_same_logs_finds_nothing_new_and_keeps_each_whole_chunk(
    group: Audited, tmp_path: Path
) -> None:
    assert group.audit() == (Verdict.SOUND, set())
    chunks = [number * CHUNK for number in range(CHUNKS)]
    assert [group.history.chunks(name).tolist() for name in NAMES] == [chunks] * 3

    save(group.history, tmp_path / "history")
    group.history = load(tmp_path / "history", "g")

    assert group.audit() == (Verdict.SOUND, set())
    assert group.history.audits == 2


def test_committed_entries_that_all_members_changed_alike_are_found_and_stay_found(
    group: Audited, tmp_path: Path
) -> None:
    group.audit()
    log = write_log(tmp_path / "changed", with_other_body(ENTRIES, 3 * CHUNK + 7), SHAPE)
    group.logs = dict.fromkeys(NAMES, log)

    for _ in range(2):
        verdict, found = group.audit()

        assert verdict is Verdict.DAMAGED
        # A chain CRC covers all entries before it, so later chunks differ, too.
        last = CHUNKS * CHUNK - 1
        assert found == {("history_changed", name, 3 * CHUNK, last) for name in NAMES}


def test_a_log_that_ends_before_what_was_committed_is_found(group: Audited) -> None:
    group.audit()
    group.change["n1"] = lambda said: replace(
        said,
        status=replace(said.status, ledger_end_index=COUNT - 11, committed_index=COUNT - 11),
    )

    verdict, found = group.audit()

    assert verdict is Verdict.DAMAGED
    assert ("history_lost", "n1", COUNT - 10, COUNT - 1) in found


def test_a_lower_commit_of_a_restarted_member_that_has_its_log_is_no_finding(
    group: Audited,
) -> None:
    group.audit()
    group.committed["n1"], group.life["n1"] = COUNT - 300, "b"

    assert group.audit() == (Verdict.SOUND, set())


def test_a_term_that_goes_back_is_found(group: Audited) -> None:
    group.audit()
    group.change["n2"] = lambda said: replace(said, status=replace(said.status, term=900))

    verdict, found = group.audit()

    assert (verdict, found) == (Verdict.DAMAGED, {("history_term", "n2", -1, -1)})


def test_a_begin_that_goes_back_is_told(group: Audited, sound: Log) -> None:
    group.change = dict.fromkeys(NAMES, without_record)
    group.logs = {name: damage.remove_front(log, 2) for name, log in group.logs.items()}
    group.audit()
    begin = group.logs["n0"].first_index
    group.logs = {**group.logs, "n0": sound}

    _, found = group.audit()

    assert ("history_begin", "n0", 0, begin - 1) in found


def without_record(said: Manifest) -> Manifest:
    """Return the manifest of a member that removes segments, and keeps no record of it."""
    settings = {"DLEDGER_RETENTION_BYTES": "1"}
    return replace(said, status=replace(said.status, settings=settings))


def test_a_front_that_was_removed_since_is_forgotten_without_a_finding(group: Audited) -> None:
    group.audit()
    group.change = dict.fromkeys(NAMES, without_record)
    group.logs = {name: damage.remove_front(log, 2) for name, log in group.logs.items()}
    begin = group.logs["n0"].first_index

    verdict, found = group.audit(since_last=True)

    assert verdict is Verdict.SOUND
    assert {check for check, *_ in found} <= {"unrecorded"}
    assert min(group.history.chunks("n0")) + CHUNK > begin


def test_a_member_that_has_left_the_group_keeps_nothing_from_being_forgotten(
    group: Audited,
) -> None:
    """Nor are its suspect chunks read any more."""
    group.audit()
    damage.flip_body(group.logs["n2"], 4 * CHUNK + 7)
    group.audit()
    group.change = dict.fromkeys(NAMES, without_record)
    left = {name: group.logs[name] for name in ("n0", "n1")}
    group.logs = {name: damage.remove_front(log, 2) for name, log in left.items()}
    begin = group.logs["n0"].first_index
    assert begin > CHUNK

    assert group.audit(since_last=True)[0] is Verdict.SOUND

    assert min(group.history.chunks("n0")) + CHUNK > begin
    assert "n2" not in group.history.reports
    assert len(group.history.chunks("n2")) == 0
    assert group.history.suspects == {}


def test_members_stay_known_while_a_majority_does_not_tell_its_membership(group: Audited) -> None:
    """One that lags tells an old one, and one whose log is damaged tells none."""
    group.audit()
    damage.flip_body(group.logs["n2"], 4 * CHUNK + 7)
    group.audit()
    group.silent = {"n2"}
    group.change = {
        "n0": lambda said: replace(said, status=replace(said.status, voters=["n0", "n1"])),
        "n1": lambda said: replace(
            said,
            status=replace(said.status, ready=False, committed_index=-1),
            life="",
            data=[],
        ),
    }

    group.audit(since_last=True)

    assert group.history.reports.keys() == set(NAMES)
    assert group.history.suspects["n2"]


def test_a_member_that_is_silent_keeps_what_it_may_hold_from_being_forgotten(
    group: Audited,
) -> None:
    group.audit()
    known = group.history.chunks("n2").tolist()
    group.change = dict.fromkeys(NAMES, without_record)
    logs = {name: damage.remove_front(log, 2) for name, log in group.logs.items()}
    group.silent, group.logs = {"n2"}, logs

    group.audit(since_last=True)

    assert group.history.chunks("n2").tolist() == known


def test_audits_since_the_last_read_all_again_in_seven_and_no_more_than_a_seventh_each(
    group: Audited,
) -> None:
    group.audit()
    read_whole, read = group.entries_read, list[int]()
    for _ in range(7):
        assert group.audit(since_last=True) == (Verdict.SOUND, set())
        read.append(group.entries_read)

    tail = 3 * (COUNT - CHUNKS * CHUNK)
    assert read_whole == 3 * COUNT
    assert sum(each - tail for each in read) == 3 * CHUNKS * CHUNK
    assert max(read) - tail <= 3 * CHUNK * -(-CHUNKS // 7)


def test_what_is_not_read_is_told_also_if_a_member_is_read_once_more(group: Audited) -> None:
    """The damage is in entries of n1 that are always read, so its new life is read as a whole."""
    group.audit()
    damage.flip_body(group.logs["n1"], COUNT - 3)
    group.restarts = {"n1"}

    assert group.audit(since_last=True) == (
        Verdict.DAMAGED,
        {("bad_body_crc", "n1", COUNT - 3, COUNT - 3)},
    )

    known = 2 * (CHUNKS - -(-CHUNKS // PARTS)) * CHUNK
    assert group.details["known_before"].startswith(f"{known:,} entries")


@pytest.mark.parametrize("index", [17, 4 * CHUNK, CHUNKS * CHUNK - 1])
def test_damage_in_what_is_known_is_found_within_seven_audits(group: Audited, index: int) -> None:
    group.audit()
    damage.flip_header(group.logs["n2"], index, "term", 1)

    found = [group.audit(since_last=True)[1] for _ in range(7)]

    assert any(("bad_chain_crc", "n2", index, index) in each for each in found)


def test_damage_that_was_found_stays_found_until_it_is_mended(
    group: Audited, tmp_path: Path
) -> None:
    group.audit()
    damage.flip_body(group.logs["n1"], 3 * CHUNK + 7)
    found = False
    for _ in range(14):
        verdict, _ = group.audit(since_last=True)
        assert verdict is Verdict.DAMAGED or not found, "it is still there"
        found = verdict is Verdict.DAMAGED
        save(group.history, tmp_path / "history")
        group.history = load(tmp_path / "history", "g")
    assert found
    assert group.history.suspects == {"n1": frozenset({3 * CHUNK})}

    damage.flip_body(group.logs["n1"], 3 * CHUNK + 7)  # back again

    assert group.audit(since_last=True) == (Verdict.SOUND, set())
    assert group.history.suspects == {}


def test_a_silent_members_suspect_chunks_stay_suspect(group: Audited) -> None:
    group.audit()
    damage.flip_body(group.logs["n1"], 3 * CHUNK + 7)
    group.audit()
    group.silent = {"n1"}
    group.audit(since_last=True)
    group.silent = set()

    assert group.audit(since_last=True)[0] is Verdict.DAMAGED


def test_what_is_new_and_members_that_were_opened_since_are_read_at_once(group: Audited) -> None:
    group.committed = dict.fromkeys(NAMES, 3 * CHUNK)
    group.audit()
    group.committed = dict.fromkeys(NAMES, COUNT - 1)
    damage.flip_body(group.logs["n1"], 5 * CHUNK + 3)

    assert ("bad_body_crc", "n1", 5 * CHUNK + 3, 5 * CHUNK + 3) in group.audit(since_last=True)[1]

    damage.flip_body(group.logs["n0"], CHUNK + 3)
    damage.flip_body(group.logs["n0"], 2 * CHUNK + 3)
    group.life["n0"] = "b"
    found = group.audit(since_last=True)[1]

    assert ("bad_body_crc", "n0", CHUNK + 3, CHUNK + 3) in found
    assert ("bad_body_crc", "n0", 2 * CHUNK + 3, 2 * CHUNK + 3) in found


@pytest.mark.parametrize("seed", range(4))
def test_a_group_that_grows_restarts_and_lags_is_sound_in_every_audit(
    group: Audited, seed: int
) -> None:
    rng = random.Random(seed)
    last = CHUNK
    for audit in range(9):
        last = rng.randint(last, min(COUNT - 1, last + 2 * CHUNK))
        for name in NAMES:
            group.committed[name] = max(0, last - rng.choice([0, 0, 1, 200, CHUNK]))
            if rng.random() < 0.2:
                group.life[name] = f"life {audit}"

        assert group.audit(since_last=rng.random() < 0.8) == (Verdict.SOUND, set())


def test_the_history_of_another_group_is_refused(group: Audited, tmp_path: Path) -> None:
    def of(identity: str) -> Change:
        return lambda said: replace(said, status=replace(said.status, group_identity=identity))

    group.change = dict.fromkeys(NAMES, of("A"))
    group.audit()
    group.change = dict.fromkeys(NAMES, of("B"))

    with pytest.raises(HistoryError, match="identity A, and the members are of one with B"):
        group.audit()
    save(group.history, tmp_path)
    with pytest.raises(HistoryError, match="the history of the group g, not of h"):
        load(tmp_path, "h")


def test_a_history_that_cannot_be_read_is_refused_and_an_unfinished_one_is_ignored(
    tmp_path: Path,
) -> None:
    history = History(group="g", audits=3)
    save(history, tmp_path)
    (tmp_path / f"{FILE}.part").write_bytes(b"PAR1")
    assert load(tmp_path, "g").audits == 3

    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(HistoryError, match="remove it"):
        load(tmp_path, "g")
    save(history, tmp_path)
    table = pq.read_table(path)
    said = json.loads(table.schema.metadata[b"dledger-audit"]) | {"version": 2}
    pq.write_table(table.replace_schema_metadata({b"dledger-audit": json.dumps(said)}), path)
    with pytest.raises(HistoryError, match=r"version 2; this release knows 1"):
        load(tmp_path, "g")


def test_a_folder_that_cannot_be_looked_into_is_no_empty_history(tmp_path: Path) -> None:
    """Such as one of another user. A name that is too long is refused to every user."""
    with pytest.raises(HistoryError, match="cannot be read"):
        load(tmp_path / ("a" * 300), "g")


def test_two_audits_at_once_do_not_share_a_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--group", "g", "--member", "n0=http://127.0.0.1:1", "--history", str(tmp_path)]

    with locked(tmp_path):
        assert main(asked) == ExitCode.FAILED
    assert f"{tmp_path} is in use by another audit" in capsys.readouterr().err
    with locked(tmp_path):
        pass


def test_the_program_says_what_is_wrong_with_a_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = ["--group", "g", "--member", "n0=http://127.0.0.1:1"]
    with pytest.raises(SystemExit):
        main([*nobody, "--since-last"])
    assert "--since-last needs --history FOLDER" in capsys.readouterr().err

    (tmp_path / FILE).write_bytes(b"no Parquet")
    told = tmp_path / "summary"
    asked = [*nobody, "--history", str(tmp_path), "--summary-file", str(told)]
    assert main(asked) == ExitCode.FAILED
    assert capsys.readouterr().err.startswith("dledger-audit: ")
    assert main([*asked, "--verdict-exits-0"]) == 0, "another try of a Job would end alike"
    failure = AuditFailure.from_json(told.read_bytes())
    assert failure.failed == "HistoryUnusable"
    assert f"{tmp_path / FILE} cannot be read" in failure.message


def test_a_folder_that_an_audit_holds_by_its_uri_is_refused(tmp_path: Path) -> None:
    (tmp_path / HADOOP_LOCK_FILE).touch()

    told = f"remove {tmp_path / HADOOP_LOCK_FILE}"
    with pytest.raises(HistoryError, match=told), locked(tmp_path):
        pass

    (tmp_path / HADOOP_LOCK_FILE).unlink()
    with locked(tmp_path):
        pass


def test_a_history_that_cannot_be_looked_for_is_told_in_words() -> None:
    with pytest.raises(HistoryError, match="File name too long"):
        load(Path("x" * 300), "g")
