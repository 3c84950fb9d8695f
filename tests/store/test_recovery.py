import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.scanning import EntryScan
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.entry_walk import EntryWalk
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.recovery import RecoveryProgress
from dledger_node.store.segments.segment import Segment
from dledger_store_files.contents import all_bytes, bodies_of, entry_or_none, files_under, flush
from dledger_store_files.damage import flip, poke

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]


@pytest.fixture
def stopped(open_store: OpenStore, crashed: Crashed) -> Path:
    """The folder of a log of BODIES that was closed in order."""
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.close()
    return crashed(store)


def test_a_killed_process_loses_no_entry(open_store: OpenStore, crashed: Crashed) -> None:
    """Written entries are in the page cache, flushed or not."""
    store = open_store()
    store.append_bodies(BODIES, term=1)

    again = open_store(crashed(store))

    assert bodies_of(again) == BODIES
    assert again.durable_index == 39
    assert (again.recovery.verified_entries, again.recovery.cut_bytes) == (40, 0)


def test_the_report_of_an_empty_log_counts_nothing(open_store: OpenStore) -> None:
    assert str(open_store().recovery).startswith("it has no entry (")


@pytest.mark.parametrize("seed", range(20))
def test_garbage_after_the_durable_index_is_cut(
    open_store: OpenStore, crashed: Crashed, seed: int
) -> None:
    choices = random.Random(seed)
    store = open_store()
    store.append_bodies(BODIES[:20], term=1)
    flush(store)
    store.save_checkpoint(19)
    unit = store.position(19)
    end = unit.pos + unit.size
    store.append_bodies(BODIES[20:], term=1)
    at = crashed(store)
    start = end + choices.randrange(2000)
    length = min(choices.randrange(1, 300), 4096 - start % 4096)
    poke(at / "data", start, choices.randbytes(length))

    again = open_store(at)

    assert again.end_index >= 19
    assert bodies_of(again) == BODIES[: again.end_index + 1]
    assert (again.recovery.cut_reason != "") == (again.end_index < 39)
    unit = again.position(again.end_index)
    assert not any(all_bytes(at / "data")[unit.pos + unit.size :])
    assert not any(all_bytes(at / "index")[(again.end_index + 1) * 32 :])


def test_a_cut_is_reported_with_its_reason(open_store: OpenStore, crashed: Crashed) -> None:
    store = open_store()
    store.append_bodies([b"sound"], term=1)
    flush(store)
    store.save_checkpoint(0)
    store.append_bodies([b"torn"] * 3, term=1)
    at = crashed(store)
    flip(at / "data", 53 + 48)

    report = open_store(at).recovery

    assert report.end_index == 0
    assert report.cut_reason.startswith("bad_body_crc")
    assert report.cut_bytes == 3 * 52
    assert str(report).startswith(
        "it has entries 0 to 0, of which 1 were verified; 156 bytes after them were cleared: "
        "bad_body_crc"
    )


def test_damage_to_durable_entries_stops_the_store_and_changes_nothing(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(20)
    at = crashed(store)
    unit = store.position(39)
    flip(at / "data", unit.pos + 60)
    before = files_under(at)

    with pytest.raises(StoreDamagedError, match=r"bad_body_crc.*entries up to 39 were durable"):
        open_store(at)
    assert files_under(at) == before


def test_the_error_names_file_byte_and_entry(open_store: OpenStore, crashed: Crashed) -> None:
    store = open_store()
    store.append_bodies([bytes(952)] * 6, term=1)
    flush(store)
    store.save_checkpoint(5)
    at = crashed(store)
    flip(at / "data", 4096 + 1000 + 3)

    with pytest.raises(StoreDamagedError, match="0004096, byte 1000: entry 5 is missing"):
        open_store(at)


@pytest.mark.parametrize("missing", ["last", "all"])
def test_missing_data_files_are_damage(
    open_store: OpenStore, crashed: Crashed, missing: str
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(-1)
    at = crashed(store)
    for path in sorted((at / "data").iterdir())[-1 if missing == "last" else 0 :]:
        path.unlink()

    with pytest.raises(StoreDamagedError, match="no data"):
        open_store(at)


def test_no_flipped_byte_is_ever_served(open_store: OpenStore, crashed: Crashed) -> None:
    """After an orderly stop nothing may be cut: a flipped byte is refused, or the entry is sound.

    If opening does not read the flipped byte, reading the entry refuses it.
    """
    bodies = [bytes([number + 1]) * (number * 37 % 700) for number in range(30)]
    store = open_store()
    store.append_bodies(bodies, term=1)
    store.append_noop(term=2)
    bodies.append(b"")
    store.close()
    refused = served = 0
    for pos in range(0, 3 * 4096, 29):
        at = crashed(store)
        flip(at / "data", pos)
        try:
            again = open_store(at)
        except StoreDamagedError:
            refused += 1
            continue
        assert again.end_index == 30
        for index, body in enumerate(bodies):
            found = entry_or_none(again, index)
            assert found in (body, None), f"byte {pos}, entry {index}"
            refused += found is None
            served += found is not None
        again.close()

    assert refused > 100
    assert served > 100


def test_an_entry_longer_than_the_window_is_recovered(
    open_store: OpenStore, crashed: Crashed
) -> None:
    bodies = [b"before", bytes(3 << 20), b"behind", b"\1" * (2 << 20)]
    store = open_store(segment=8 << 20)
    store.append_bodies(bodies, term=1)
    at = crashed(store)

    assert bodies_of(open_store(at, segment=8 << 20)) == bodies


def test_a_missing_first_segment_is_damage(open_store: OpenStore, stopped: Path) -> None:
    (stopped / "data" / disk.file_name(0)).unlink()

    with pytest.raises(StoreDamagedError, match="the log began with entry 0") as refused:
        open_store(stopped)

    assert refused.value.damage is Damage.MISSING_SEGMENT


def test_every_entry_is_verified_without_a_checkpoint(open_store: OpenStore, stopped: Path) -> None:
    (stopped / "checkpoint").unlink()

    again = open_store(stopped)

    assert again.recovery.verified_entries == 40
    assert again.committed_index == -1


def test_a_damaged_checkpoint_is_ignored_or_harmless(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(30)
    store.close()
    text = (store._folder / "checkpoint").read_bytes()
    found = []
    for byte in range(len(text)):
        at = crashed(store)
        (at / "checkpoint").write_bytes(text[:byte] + bytes([text[byte] ^ 1]) + text[byte + 1 :])
        again = open_store(at)
        assert bodies_of(again) == BODIES
        found.append(again.committed_index)
        again.close()

    # A flip in the mark of the checksum line makes it a comment; then it looks like a file of Java.
    assert found.count(30) == len("#crc32=") - 1
    assert found.count(-1) == len(text) - found.count(30)


def test_a_torn_last_entry_is_cut_without_a_checkpoint(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    at = crashed(store)
    (at / "checkpoint").unlink()
    flip(at / "data", store.position(39).pos + 60)

    assert open_store(at).end_index == 38


@pytest.mark.parametrize("index", [0, 3, 37])
def test_damage_before_sound_entries_is_refused_without_a_checkpoint(
    open_store: OpenStore, crashed: Crashed, index: int
) -> None:
    store = open_store()
    store.append_bodies([*BODIES[:37], b"", b"", b"last"], term=1)
    at = crashed(store)
    (at / "checkpoint").unlink()
    flip(at / "data", store.position(index).pos + 2)

    with pytest.raises(StoreDamagedError, match="later entries are sound"):
        open_store(at)


def test_a_log_that_lost_its_first_segments_begins_later(
    open_store: OpenStore, crashed: Crashed
) -> None:
    """Java's retention removes whole files from the front."""
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.append_noop(term=2)
    third = store.segments.data(40)[2]
    store.close()
    at = crashed(store)
    for path in sorted((at / "data").iterdir())[:2]:
        path.unlink()
    (at / "checkpoint").write_text("committedIndex=40\nendIndex=40\n")

    again = open_store(at)

    assert again.begin_index == third.first_index > 0
    assert bodies_of(again) == [*BODIES[third.first_index :], b""]
    assert again.term_runs() == [(third.first_index, 1), (40, 2)]
    with pytest.raises(IndexError):
        again.entry(third.first_index - 1)


def test_a_missing_segment_in_the_middle_is_refused(open_store: OpenStore, stopped: Path) -> None:
    (stopped / "data" / disk.file_name(4096)).unlink()

    with pytest.raises(StoreDamagedError, match="a file is missing"):
        open_store(stopped)


@pytest.mark.parametrize("name", ["lost+found", "0", disk.file_name(0)])
def test_a_file_that_is_not_a_segment_is_refused(
    open_store: OpenStore, folder: Path, name: str
) -> None:
    open_store().close()
    (folder / "data" / name).write_bytes(b"short")

    with pytest.raises(StoreDamagedError, match=name.replace("+", r"\+")):
        open_store()


@pytest.mark.parametrize("count", [2, len(BODIES)], ids=["one segment", "several"])
def test_another_segment_size_is_refused(open_store: OpenStore, count: int) -> None:
    store = open_store()
    store.append_bodies(BODIES[:count], term=1)
    store.close()

    with pytest.raises(StoreDamagedError, match="Was the segment size changed"):
        open_store(segment=8192)


def test_a_blank_without_a_following_entry_is_cut(open_store: OpenStore, crashed: Crashed) -> None:
    """After a crash between blank and entry, the next entry goes where a follower places it."""
    store = open_store()
    store.append_bodies([bytes(3000)], term=1)
    store.append_bodies([bytes(3000)], term=1)
    at = crashed(store)
    (at / "data" / disk.file_name(4096)).unlink()
    again = open_store(at)
    again.append_bodies([b"small"], term=1)

    assert again.position(1).pos == 3048
    again.close()
    assert open_store(at).end_index == 1


def test_recovered_entries_are_durable_before_they_are_served(
    open_store: OpenStore, crashed: Crashed, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    at = crashed(store)
    synced: list[str] = []

    sync = Segment.sync

    def recording_sync(file: Segment) -> None:
        synced.append(f"{file.path.parent.name}/{file.path.name}")
        sync(file)

    monkeypatch.setattr(Segment, "sync", recording_sync)
    again = open_store(at)

    assert again.durable_index == 39
    assert set(synced) == {name for name in files_under(at) if "/" in name}


def test_the_progress_of_an_opening_can_be_followed(
    open_store: OpenStore, crashed: Crashed, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.append_bodies([bytes(952)] * 12, term=1)
    flush(store)
    at, progress, seen = crashed(store), RecoveryProgress(), list[tuple[int, int]]()
    take = EntryWalk._take

    def noting(walk: EntryWalk, file: Segment, pos: int) -> EntryScan:
        seen.append((progress.verified_bytes, progress.size_bytes))
        return take(walk, file, pos)

    monkeypatch.setattr(EntryWalk, "_take", noting)
    open_store(at, verify_all=True, progress=progress)

    size_bytes = progress.size_bytes
    assert size_bytes >= 3 * 4096
    assert sorted(set(seen))[:3] == [(0, size_bytes), (4000, size_bytes), (8096, size_bytes)]
    assert progress.verified_bytes == size_bytes
