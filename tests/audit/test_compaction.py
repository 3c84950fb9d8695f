"""Compaction against a naive model, and what it does with damage, several runs and crashes."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.compact import plan
from dledger_compaction.model import key_history, naive
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk
from dledger_logs import damage
from dledger_logs.histories import small_shape, with_other_body
from dledger_logs.layout import Log, manifest
from dledger_logs.read import read_log
from dledger_logs.write import Entry, Shape, write_log
from dledger_node.store_command.report import Verdict
from dledger_node.store_command.verify import verify
from pyspark_dledger.copies import Copy, RefusedError

SHAPE = small_shape()
COUNT = 400


def clean_index_of(log: Log) -> int:
    return log.places_in(log.segments[-1])[0].index - 1


def entries_in(archive: Archive) -> list[Entry]:
    """Return an archive's entries, read by the tests' own walk with all checksums."""
    log = read_log(archive.log)
    found = []
    for place in log.places:
        raw = log.entry_bytes(place.index)
        header = disk.check_entry(raw, 0, len(raw))
        assert header.pos == place.pos
        assert header.body_crc == disk.body_crc(raw[48:])
        found.append(
            Entry(term=header.term, body=raw[48:], magic=header.magic, channel=header.channel)
        )
    assert log.first_index == archive.info.first_index
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def members_of(tmp_path: Path, entries: list[Entry], shape: Shape = SHAPE) -> dict[str, Log]:
    return {name: write_log(tmp_path / name, entries, shape) for name in ("n0", "n1", "n2")}


@pytest.mark.parametrize("seed", range(20))
def test_an_archive_holds_what_the_naive_model_keeps(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    history = key_history(rng.randint(150, COUNT), seed, keys=rng.choice([1, 5, 40]))
    logs = members_of(tmp_path, history)
    tombstone_entries = rng.choice([0, 1, 30, 1000])

    archive = compacted(
        copies_of(logs), tmp_path / "a", tombstone_entries=tombstone_entries,
        entries_max=rng.choice([None, 1, 7, 64]), window_bytes=rng.choice([1 << 12, 1 << 20]),
    )  # fmt: skip

    assert archive is not None
    clean_index = clean_index_of(logs["n0"])
    assert archive.info.clean_index == clean_index
    assert archive.info.end_index == len(history) - 1
    assert entries_in(archive) == naive(history, clean_index, tombstone_entries)
    assert archive.damaged_files() == []
    report = verify(archive.log)
    assert (report.verdict, report.end_index) == (Verdict.SOUND, len(history) - 1)


def test_every_member_and_division_gives_the_same_bytes(tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(COUNT, 1))
    copies = copies_of(logs)
    whole = compacted(copies, tmp_path / "whole")
    assert whole is not None

    for number, order in enumerate(([1, 2, 0], [2, 0, 1])):
        path = tmp_path / f"other{number}"
        compacted([copies[at] for at in order], path, entries_max=13, window_bytes=1 << 12)
        assert contents(path) == contents(whole.path)


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    copies = copies_of(members_of(tmp_path, key_history(COUNT, 2)))
    archive = compacted(copies, tmp_path / "a")
    assert archive is not None
    before = contents(archive.path)

    assert compacted(copies, tmp_path / "a") is None

    assert contents(archive.path) == before


@pytest.mark.parametrize("seed", range(6))
def test_later_runs_equal_one_run_even_if_the_log_lost_its_front(seed: int, tmp_path: Path) -> None:
    history = key_history(900, seed)
    whole = members_of(tmp_path / "whole", history)
    expected = compacted(copies_of(whole), tmp_path / "expected")
    assert expected is not None

    for count in (300, 550, 900):
        logs = members_of(tmp_path / f"at{count}", history[:count])
        previous = Archive.load(tmp_path / "a")
        if previous is not None:
            logs = {name: without_front(log, previous) for name, log in logs.items()}
            assert logs["n0"].first_index > 0
        archive = compacted(copies_of(logs), tmp_path / "a")

    assert archive is not None
    assert entries_in(archive) == entries_in(expected)
    assert archive.info.files == expected.info.files


def without_front(log: Log, archive: Archive) -> Log:
    """Remove the segments that an archive holds up to its clean point."""
    gone = [
        name
        for name in log.segments[:-1]
        if log.places_in(name)[-1].index <= archive.info.clean_index
    ]
    return damage.remove_front(log, len(gone))


def test_a_gap_between_the_archive_and_the_log_is_refused(tmp_path: Path) -> None:
    history = key_history(900, 3)
    compacted(copies_of(members_of(tmp_path / "early", history[:300])), tmp_path / "a")
    before = contents(tmp_path / "a")
    logs = members_of(tmp_path / "late", history)
    late = {name: damage.remove_front(log, len(log.segments) - 3) for name, log in logs.items()}
    begin = late["n0"].first_index

    said = f"ends with entry 299, and the members begin with {begin}: .*compact to another folder"
    with pytest.raises(RefusedError, match=said):
        compacted(copies_of(late), tmp_path / "a")

    after = contents(tmp_path / "a")
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("seed", range(8))
def test_each_entry_is_taken_from_a_member_that_has_it_intact(seed: int, tmp_path: Path) -> None:
    history = key_history(COUNT, seed)
    logs = members_of(tmp_path, history)
    expected = compacted(copies_of(logs), tmp_path / "expected")
    rng = random.Random(seed)
    names = list(logs)
    for index in rng.sample(range(1, COUNT), 30):
        log = logs[rng.choice(names[:2])]
        if rng.random() < 0.5 and history[index].body:
            damage.flip_body(log, index)
        else:
            damage.flip_header(log, index, rng.choice(list(damage.HEADER_FIELDS)), 0)

    archive = compacted(copies_of(logs), tmp_path / "a")

    assert archive is not None
    assert expected is not None
    assert entries_in(archive) == entries_in(expected)


def test_entries_that_no_member_has_intact_are_refused(tmp_path: Path) -> None:
    history = key_history(COUNT, 4)
    logs = members_of(tmp_path, history)
    at = next(i for i, entry in enumerate(history) if i > 50 and entry.body)
    for log in logs.values():
        damage.flip_body(log, at)

    with pytest.raises(RefusedError, match=f"entries {at} to {at} intact .*bad_body_crc"):
        compacted(copies_of(logs), tmp_path / "a")

    assert Archive.load(tmp_path / "a") is None


def test_members_with_different_histories_are_refused(tmp_path: Path) -> None:
    history = key_history(COUNT, 5)
    at = next(i for i, entry in enumerate(history) if i > 50 and entry.body)
    logs = members_of(tmp_path, history)
    logs["n2"] = write_log(tmp_path / "other", with_other_body(history, at), SHAPE)

    with pytest.raises(RefusedError, match="differ at or before"):
        compacted(copies_of(logs), tmp_path / "a")


def test_followers_are_read_before_the_leader(tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(COUNT, 1))
    served = manifest(logs["n0"], "n0", peers=logs)
    leads = replace(served, status=replace(served.status, leader_id="n0"))

    planned = plan("g", copies_of(logs, {"n0": leads}), "kv", 20, None)

    assert planned is not None
    assert [[copy.member for copy in part.copies] for part in planned.parts] == [["n1", "n2", "n0"]]


def test_the_clean_point_is_the_lowest_commit_of_the_voters(tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(COUNT, 6))
    late = manifest(logs["n1"], "n1", peers=logs, committed_index=120)

    archive = compacted(copies_of(logs, {"n1": late}), tmp_path / "a")

    assert archive is not None
    assert (archive.info.clean_index, archive.info.end_index) == (120, 120)


def test_an_archive_whose_last_entry_was_dropped_is_continued(tmp_path: Path) -> None:
    """The folder of a killed member has segments after what its checkpoint calls committed."""
    history = key_history(COUNT, 7)
    history[120] = replace(history[120], magic=disk.NORMAL, channel=0, body=b"k1=")
    logs = members_of(tmp_path, history)
    early = copies_of(logs, {"n0": manifest(logs["n0"], "n0", committed_index=120)})
    first = compacted(early, tmp_path / "a", tombstone_entries=0)
    assert first is not None
    assert first.info.clean_index == first.info.end_index == 120

    again = compacted(copies_of(logs), tmp_path / "a", tombstone_entries=0)

    assert again is not None
    assert again.info.end_index == COUNT - 1


def test_a_log_of_one_segment_is_refused(tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(10, 7))

    with pytest.raises(RefusedError, match="can be compacted yet"):
        compacted(copies_of(logs), tmp_path / "a")


def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    copies = copies_of(members_of(tmp_path, key_history(COUNT, 8)))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.txt").write_text("mine")

    with pytest.raises(RefusedError, match="thesis"):
        compacted(copies, tmp_path / "a")

    assert contents(tmp_path / "a") == {"thesis.txt": b"mine"}


def test_another_decoder_needs_another_archive(tmp_path: Path) -> None:
    copies = copies_of(members_of(tmp_path, key_history(COUNT, 9)))
    compacted(copies, tmp_path / "a")

    with pytest.raises(RefusedError, match="decoder kv, not register"):
        compacted(copies, tmp_path / "a", "register")


def with_identity(copy: Copy, identity: str) -> Copy:
    status = replace(copy.manifest.status, group_identity=identity)
    return replace(copy, manifest=replace(copy.manifest, status=status))


def test_an_archive_is_of_the_group_whose_identity_any_member_knows(tmp_path: Path) -> None:
    """One that is out of service does not tell an identity that the group has founded itself.

    An archive of an earlier time, when nobody knew one, takes it over.
    """
    history, folder = key_history(900, 3), tmp_path / "archive"

    def run(count: int, **identities: str) -> str:
        copies = copies_of(members_of(tmp_path / f"{count} {identities}", history[:count]))
        told = [with_identity(each, identities.get(each.member, "")) for each in copies]
        archive = compacted(told, folder)
        assert archive is not None
        return archive.info.group_identity

    assert run(300) == ""
    assert run(550, n2="A") == "A"
    assert run(700) == "A"
    with pytest.raises(RefusedError, match="another group"):
        run(900, n1="B")
    shutil.rmtree(folder)
    assert run(900, n1="A") == "A"


def test_more_tombstones_need_another_archive(tmp_path: Path) -> None:
    copies = copies_of(members_of(tmp_path, key_history(COUNT, 9)))
    compacted(copies, tmp_path / "a", tombstone_entries=60)
    before = contents(tmp_path / "a")

    with pytest.raises(RefusedError, match=r"60, not 61: .*; give 60 .*compact to another folder"):
        compacted(copies, tmp_path / "a", tombstone_entries=61)

    assert contents(tmp_path / "a") == before
    fewer = compacted(copies, tmp_path / "a", tombstone_entries=30)
    alone = compacted(copies, tmp_path / "alone", tombstone_entries=30)
    assert fewer is not None
    assert alone is not None
    assert fewer.info.files == alone.info.files


def test_a_damaged_archive_is_made_again_from_whole_logs_only(tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(COUNT, 10))
    archive = compacted(copies_of(logs), tmp_path / "a")
    assert archive is not None
    sound = entries_in(archive)
    damage.flip_header(read_log(archive.log), 30, "term", 0)
    shorter = {name: damage.remove_front(log, 1) for name, log in copied(logs, tmp_path).items()}

    with pytest.raises(RefusedError, match="is damaged, and the members begin"):
        compacted(copies_of(shorter), tmp_path / "a")
    again = compacted(copies_of(logs), tmp_path / "a")

    assert again is not None
    assert entries_in(again) == sound
    assert sorted(path.name for path in again.path.iterdir()) == sorted(
        ["archive.json", again.info.folder, "lock"]
    )


@pytest.mark.parametrize("file", ["data", "currterm", "checkpoint"])
def test_a_damaged_archive_is_refused_while_a_voter_lags(file: str, tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(COUNT, 12))
    archive = compacted(copies_of(logs), tmp_path / "a")
    assert archive is not None
    late = copies_of(logs, {"n1": manifest(logs["n1"], "n1", peers=logs, committed_index=120)})
    assert compacted(late, tmp_path / "a") is None
    if file == "data":
        damage.flip_header(read_log(archive.log), 30, "term", 0)
    else:
        (archive.log / file).write_bytes(b"committedIndex=1\ncurrTerm=1\n")
    before = contents(tmp_path / "a")

    with pytest.raises(RefusedError, match=f"{file}.* is damaged, and the voters have committed"):
        compacted(late, tmp_path / "a")

    assert contents(tmp_path / "a") == before
    again = compacted(copies_of(logs), tmp_path / "a")
    assert again is not None
    assert again.info.files == archive.info.files
    assert again.damaged_files() == []


def copied(logs: dict[str, Log], tmp_path: Path) -> dict[str, Log]:
    for name, log in logs.items():
        shutil.copytree(log.root, tmp_path / "copied" / name)
    return {name: read_log(tmp_path / "copied" / name) for name in logs}


def test_an_archive_is_a_copy_itself(tmp_path: Path) -> None:
    archive = compacted(copies_of(members_of(tmp_path, key_history(COUNT, 11))), tmp_path / "a")
    assert archive is not None
    copy: Copy = archive.copy()

    assert (copy.first_index, copy.committed_index) == (0, archive.info.end_index)
