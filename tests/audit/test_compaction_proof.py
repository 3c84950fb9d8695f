"""`verify-compaction`: every planted fault is named, and sound archives have no finding."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.proof.verify import Sources, verify
from dledger_compaction.faults import FAULTS, Sound
from dledger_compaction.model import key_history, naive
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import manifest
from dledger_logs.read import read_log
from dledger_logs.write import Entry, write_log
from dledger_logs.zero_crcs import body_with_crc_0, channel_with_chain_crc_0
from pyspark_dledger.copies import RefusedError

SHAPE = small_shape()
PLACES = 20
COUNT = 300
TOMBSTONE_ENTRIES = 60


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """Return an archive with entries of every kind."""
    folder = tmp_path_factory.mktemp("sound")
    history = key_history(COUNT, 17, keys=25)
    write_log(folder / "n0", history, SHAPE)
    archive = compacted(
        copies_of({"n0": write_log(folder / "again", history, SHAPE)}), folder / "a",
        tombstone_entries=TOMBSTONE_ENTRIES,
    )  # fmt: skip
    assert archive is not None
    kept = naive(history, archive.info.clean_index, TOMBSTONE_ENTRIES)
    return Sound(archive=archive, source=history, kept=kept, shape=SHAPE)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_at_random_places(
    fault: str, sound: Sound, tmp_path: Path
) -> None:
    check, plant = FAULTS[fault]
    sources = Sources(members=copies_of({"n0": write_log(tmp_path / "n0", sound.source, SHAPE)}))
    for number in range(PLACES):
        path = tmp_path / f"{number}"
        shutil.copytree(sound.archive.path, path)

        index = plant(sound, path, random.Random(f"{fault} {number}"))

        archive = Archive.load(path)
        assert archive is not None
        found = verify(archive, sources)
        named = [(each.check, each.index) for each in found.first]
        assert found.is_damaged
        if index is None:
            assert check in found.counts
        else:
            assert (check, index) in named, named


@pytest.mark.parametrize("seed", range(100))
def test_an_archive_of_a_random_history_has_no_finding(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    history = key_history(rng.randint(120, 400), seed, keys=rng.choice([1, 4, 30, 200]))
    copies = copies_of({"n0": write_log(tmp_path / "n0", history, SHAPE)})
    tombstone_entries = rng.choice([0, 1, 25, 10_000])
    archive = compacted(copies, tmp_path / "a", tombstone_entries=tombstone_entries)
    assert archive is not None

    assert verify(archive, Sources(members=copies)).first == []


@pytest.mark.parametrize("is_chain", [False, True])
def test_an_archive_with_a_checksum_that_is_computed_as_0_is_right(
    is_chain: bool, tmp_path: Path
) -> None:
    history, body = key_history(300, 5), body_with_crc_0()
    channel = channel_with_chain_crc_0(body, index=0, term=1, pos=0, seed=0) if is_chain else 0
    history[0] = Entry(term=1, body=body, channel=channel)
    log = write_log(tmp_path / "n0", history, SHAPE)
    header = disk.unpack_header(log.entry_bytes(0), 0)
    assert (header.body_crc, header.chain_crc == 0) == (0, is_chain)
    archive = compacted(copies_of({"n0": log}), tmp_path / "a")
    assert archive is not None

    assert verify(archive, Sources(members=copies_of({"n0": log}))).first == []


def test_an_entry_with_an_index_before_the_log_is_named(sound: Sound, tmp_path: Path) -> None:
    """Its checksums are right, as a program with a bug writes them."""
    shutil.copytree(sound.archive.path, tmp_path / "a")
    archive = Archive.load(tmp_path / "a")
    assert archive is not None
    log = read_log(archive.log)
    last, before = (disk.unpack_header(log.entry_bytes(log.last_index - k), 0) for k in (0, 1))
    assert last.magic == disk.NORMAL
    wrong = last._replace(index=-1_000_000)
    wrong = wrong._replace(chain_crc=disk.chain_crc_of(wrong, before.chain_crc))
    place = log.places[-1]
    damage.overwrite(log.data_path(place.segment), place.offset, disk.ENTRY_HEADER.pack(*wrong))
    source = copies_of({"n0": write_log(tmp_path / "n0", sound.source, SHAPE)})

    found = verify(archive, Sources(members=source))

    assert {"digest_differs", "wrong_place", "wrong_end", "missing"} <= found.counts.keys()


def test_a_removed_front_is_told_and_proven_with_the_archive_before(tmp_path: Path) -> None:
    history = key_history(700, 5)
    early = {"n0": write_log(tmp_path / "early" / "n0", history[:350], SHAPE)}
    first = compacted(copies_of(early), tmp_path / "a")
    assert first is not None
    shutil.copytree(first.path, tmp_path / "before")
    previous = Archive.load(tmp_path / "before")
    log = write_log(tmp_path / "late" / "n0", history, SHAPE)
    gone = [
        name for name in log.segments if log.places_in(name)[-1].index <= first.info.clean_index
    ]
    late = copies_of({"n0": damage.remove_front(log, len(gone))})
    archive = compacted(late, tmp_path / "a")
    assert archive is not None
    assert late[0].first_index > 0

    alone = verify(archive, Sources(members=late))
    both = verify(archive, Sources(members=late, previous=previous))

    assert [each.check for each in alone.first] == ["not_in_source"]
    assert not alone.is_damaged
    assert both.first == []


def test_an_archive_that_begins_after_its_source_lacks_the_entries_before(
    sound: Sound, tmp_path: Path
) -> None:
    """The keys that only those entries have would be lost with the log's front."""
    log = write_log(tmp_path / "n0", sound.source, SHAPE)
    late = compacted(copies_of({"n0": damage.remove_front(log, 1)}), tmp_path / "a")
    assert late is not None
    whole = Sources(members=copies_of({"n0": write_log(tmp_path / "n1", sound.source, SHAPE)}))

    found = verify(late, whole)

    assert [(each.check, each.index) for each in found.first] == [("missing", 0)]
    assert f"entries 0 to {late.info.first_index - 1}" in found.first[0].detail


def test_only_the_archive_before_is_taken_as_such(tmp_path: Path) -> None:
    history = key_history(700, 5)
    early = copies_of({"n0": write_log(tmp_path / "early", history[:350], SHAPE)})
    late = copies_of({"n0": write_log(tmp_path / "late", history, SHAPE)})
    first = compacted(early, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "before")
    before = Archive.load(tmp_path / "before")
    archive = compacted(late, tmp_path / "a")
    assert first is not None
    assert before is not None
    assert archive is not None

    assert verify(archive, Sources(members=late, previous=before)).first == []
    with pytest.raises(RefusedError, match="is not the archive before this one"):
        verify(archive, Sources(members=late, previous=archive))
    with pytest.raises(RefusedError, match="was made by a first run"):
        verify(before, Sources(members=late, previous=before))
    damage.flip_header(read_log(before.log), 30, "term", 0)
    with pytest.raises(RefusedError, match=r"before/.*data/0+ is damaged"):
        verify(archive, Sources(members=late, previous=before))


def test_a_fault_that_the_archive_before_had_is_named_while_the_members_know_better(
    sound: Sound, tmp_path: Path
) -> None:
    check, plant = FAULTS["an entry without a key is dropped"]
    shutil.copytree(sound.archive.path, tmp_path / "a")
    index = plant(sound, tmp_path / "a", random.Random(1))
    shutil.copytree(tmp_path / "a", tmp_path / "before")
    more = Entry(term=sound.source[-1].term, body=b"no key")
    source = [*sound.source, *[more] * 200]
    late = copies_of({"n0": write_log(tmp_path / "n0", source, SHAPE)})
    archive = compacted(late, tmp_path / "a", tombstone_entries=TOMBSTONE_ENTRIES)
    assert archive is not None

    found = verify(archive, Sources(members=late, previous=Archive.load(tmp_path / "before")))

    assert [(each.check, each.index) for each in found.first] == [(check, index)]


def test_a_voter_that_lags_hides_nothing_and_makes_no_archive_wrong(
    sound: Sound, tmp_path: Path
) -> None:
    copies = copies_of(
        {
            "n0": write_log(tmp_path / "n0", sound.source, SHAPE),
            "n1": write_log(tmp_path / "n1", sound.source[:100], SHAPE),
        }
    )
    wrong = tmp_path / "wrong"
    shutil.copytree(sound.archive.path, wrong)
    check, plant = FAULTS["an entry after the clean point is dropped"]
    index = plant(sound, wrong, random.Random(1))
    archive = Archive.load(wrong)
    assert archive is not None

    found = verify(archive, Sources(members=copies))

    assert verify(sound.archive, Sources(members=copies)).first == []
    assert [(each.check, each.index) for each in found.first] == [(check, index)]


def test_an_archive_whose_end_no_member_has_committed_is_not_judged(
    sound: Sound, tmp_path: Path
) -> None:
    end_index = sound.archive.info.end_index
    log = write_log(tmp_path / "n0", sound.source, SHAPE)
    late = manifest(log, "n0", committed_index=end_index - 1)

    with pytest.raises(RefusedError, match=f"no member knows now that entry {end_index} is comm"):
        verify(sound.archive, Sources(members=copies_of({"n0": log}, {"n0": late})))


def test_a_voter_that_was_rebuilt_with_other_segments_leaves_the_archive_right(
    sound: Sound, tmp_path: Path
) -> None:
    clean_index = sound.archive.info.clean_index
    begin = clean_index - 5
    logs = {
        "n0": write_log(tmp_path / "n0", sound.source, SHAPE),
        "n1": write_log(tmp_path / "n1", sound.source[begin:], replace(SHAPE, first_index=begin)),
    }
    assert logs["n1"].places_in(logs["n1"].segments[-1])[0].index <= clean_index

    assert verify(sound.archive, Sources(members=copies_of(logs))).first == []


def test_keys_are_divided_among_files_without_a_difference(
    sound: Sound, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger_audit.compaction.proof.expected.KEYS_PER_BUCKET", 20)
    copies = copies_of({"n0": write_log(tmp_path / "n0", sound.source, SHAPE)})

    assert verify(sound.archive, Sources(members=copies)).first == []
