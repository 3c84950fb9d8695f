import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.log_store import LogStore
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


def test_a_killed_process_loses_nothing(open_store: OpenStore, crashed: Crashed) -> None:
    """What was copied into the mapping is in the page cache, flushed or not."""
    store = open_store()
    store.append_bodies(BODIES, term=1)

    again = open_store(crashed(store))

    assert bodies_of(again) == BODIES
    assert again.durable_index == 39
    assert (again.recovery.verified_entries, again.recovery.cut_bytes) == (40, 0)


@pytest.mark.parametrize("seed", range(20))
def test_garbage_behind_the_durable_end_is_cut(
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
    """After an orderly stop, so that nothing may be cut: a flip is refused, or the entry is sound.

    The flip may be in a segment that opening does not read; then reading the entry refuses it.
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


SMALL_MARGIN = 2000
"""With this margin, opening a log of a few segments does not read all of it."""


def test_what_was_durable_is_not_read_again_but_for_a_margin(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    store.append_bodies(BODIES[:35], term=1)
    flush(store)
    store.save_checkpoint(34)
    margin_pos = store.position(34).pos + store.position(34).size - 2000
    first_verified = next(k for k in range(35) if store.position(k).pos >= margin_pos)
    store.append_bodies(BODIES[35:], term=1)
    at = crashed(store)
    flip(at / "data", store.position(3).pos + 50)

    again = open_store(at, margin_bytes=SMALL_MARGIN)

    assert first_verified > 20
    assert again.recovery.verified_entries == 40 - first_verified
    assert bodies_of(again, 4) == BODIES[4:]
    for ask in (again.entry, lambda index: again.read_range(index - 1, index + 1, 1 << 20)):
        with pytest.raises(StoreDamagedError, match=r"entry 3: .*bad_body_crc") as refused:
            ask(3)
        assert (refused.value.damage, refused.value.index) == (Damage.BAD_ENTRY, 3)


def test_a_lost_index_file_of_entries_that_are_not_read_again_is_made_anew(
    open_store: OpenStore, stopped: Path
) -> None:
    min((stopped / "index").iterdir()).unlink()

    assert bodies_of(open_store(stopped, margin_bytes=SMALL_MARGIN)) == BODIES


def test_everything_is_read_on_demand(stopped: Path) -> None:
    options = {"segment_size_bytes": 4096, "index_segment_size_bytes": 320}
    options["margin_bytes"] = SMALL_MARGIN
    whole = LogStore.open(stopped, **options, verify_all=True)
    damaged = whole.position(3)
    whole.close()
    flip(stopped / "data", damaged.pos + 50)

    assert whole.recovery.verified_entries == 40
    with pytest.raises(StoreDamagedError, match="entry 3 is missing or damaged"):
        LogStore.open(stopped, **options, verify_all=True)


def test_a_range_over_several_terms_is_verified_when_it_is_read(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    for term in range(8):
        store.append_bodies(BODIES[term * 5 : term * 5 + 5], term)
    store.close()

    again = open_store(crashed(store), margin_bytes=SMALL_MARGIN)

    assert again.recovery.verified_entries < 20
    assert again.read_range(0, 30, 1 << 20)[0] == again._files.runs(0, 30)


def test_an_entry_longer_than_the_window_is_recovered(
    open_store: OpenStore, crashed: Crashed
) -> None:
    bodies = [b"before", bytes(3 << 20), b"behind", b"\1" * (2 << 20)]
    store = open_store(segment=8 << 20)
    store.append_bodies(bodies, term=1)
    at = crashed(store)

    assert bodies_of(open_store(at, segment=8 << 20)) == bodies


def test_segments_that_nobody_removed_from_the_front_are_damage(
    open_store: OpenStore, stopped: Path
) -> None:
    (stopped / "data" / disk.file_name(0)).unlink()

    with pytest.raises(StoreDamagedError, match="the log began with entry 0") as refused:
        open_store(stopped)

    assert refused.value.damage is Damage.MISSING_SEGMENT


def test_without_a_checkpoint_everything_is_read(open_store: OpenStore, stopped: Path) -> None:
    (stopped / "checkpoint").unlink()

    again = open_store(stopped)

    assert again.recovery.verified_entries == 40
    assert again.committed_index == -1


def test_a_damaged_checkpoint_is_as_good_as_none(open_store: OpenStore, crashed: Crashed) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(30)
    store.close()
    text = (store._folder / "checkpoint").read_bytes()
    for byte in range(len(text)):
        at = crashed(store)
        (at / "checkpoint").write_bytes(text[:byte] + bytes([text[byte] ^ 1]) + text[byte + 1 :])
        again = open_store(at)
        assert bodies_of(again) == BODIES
        assert again.committed_index in (30, -1)
        again.close()


def test_without_a_checkpoint_a_torn_last_entry_is_cut(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    at = crashed(store)
    (at / "checkpoint").unlink()
    flip(at / "data", store.position(39).pos + 60)

    assert open_store(at).end_index == 38


@pytest.mark.parametrize("index", [0, 3, 37])
def test_without_a_checkpoint_damage_with_sound_entries_behind_is_refused(
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
    """As Java's clean-up leaves it: whole files are gone from the front."""
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
def test_a_file_that_is_no_segment_is_refused(
    open_store: OpenStore, folder: Path, name: str
) -> None:
    open_store().close()
    (folder / "data" / name).write_bytes(b"short")

    with pytest.raises(StoreDamagedError, match=name.replace("+", r"\+")):
        open_store()


def test_another_segment_size_is_refused(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.close()

    with pytest.raises(StoreDamagedError, match="Was the segment size changed"):
        open_store(segment=8192)


def test_a_blank_without_an_entry_behind_it_is_no_part_of_the_log(
    open_store: OpenStore, crashed: Crashed
) -> None:
    """A crash between the blank and the entry: the next entry goes where a follower puts it."""
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


def test_what_recovery_keeps_is_durable_before_it_is_served(
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
