"""Every way to damage a log: the decoder must flag the right entries with the right fault."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dledger_formats.http.status import SegmentFile
from dledger_logs import damage
from dledger_logs.histories import history, small_shape, with_other_body, with_term
from dledger_logs.layout import Log, manifest
from dledger_logs.read import read_log
from dledger_logs.serve import without_segment
from dledger_logs.write import Entry, Shape, write_log
from dledger_scan.scanning import flagged, flags_of, scan_log
from pyspark_dledger.decode import Entries
from pyspark_dledger.layout import DAMAGED, Flag
from pyspark_dledger.ranges import IndexRange

COUNT = 300
ENTRIES = history(COUNT)
LAST = COUNT - 1

indexes = st.integers(0, LAST)
windows = st.sampled_from([400, 700, 1 << 20])  # the largest entry has 138 bytes
some = settings(max_examples=20)


@contextmanager
def a_log(entries: list[Entry] = ENTRIES, shape: Shape | None = None) -> Iterator[Log]:
    """Write a temporary log for one example."""
    with TemporaryDirectory() as folder:
        yield write_log(Path(folder) / "log", entries, shape or small_shape())


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=150),
    st.integers(400, 9000),
    st.sampled_from([512, 4096]),
)
@some
def test_a_sound_log_of_any_shape_is_read_completely_without_flags(
    sizes: list[int], window_bytes: int, segment_bytes: int
) -> None:
    entries = [Entry(term=1, body=bytes([size % 251]) * size) for size in sizes]
    with a_log(entries, small_shape(segment_bytes)) as log:
        runs = scan_log(log, window_bytes=window_bytes)

    assert flags_of(runs) == dict.fromkeys(range(len(sizes)), Flag(0))
    assert [size for run in runs if isinstance(run, Entries) for size in run.bodies.sizes] == sizes


WHAT_A_FLIP_SHOWS = {
    "magic": Flag.BAD_MAGIC,
    "size": Flag.BAD_SIZE,
    "index": Flag.BAD_INDEX,
    "term": Flag.BAD_CHAIN_CRC,
    "pos": Flag.BAD_CHAIN_CRC,
    "channel": Flag.BAD_CHAIN_CRC,
    "chain_crc": Flag.BAD_CHAIN_CRC,
    "body_crc": Flag.BAD_CHAIN_CRC,
    "body_size": Flag.BAD_SIZE,
}


@pytest.mark.parametrize("field", damage.HEADER_FIELDS)
@given(index=indexes, bit=st.integers(0, 31))
@example(index=0, bit=0)
@example(index=LAST, bit=31)
@some
def test_a_flipped_bit_in_a_header_is_detected(field: str, index: int, bit: int) -> None:
    with a_log() as log:
        damage.flip_header(log, index, field, bit)
        found = flagged(scan_log(log))

    assert set(found) == {index}
    if field == "body_crc" and ENTRIES[index].body:
        assert found[index] == Flag.BAD_CHAIN_CRC | Flag.BAD_BODY_CRC
    else:
        assert found[index] & WHAT_A_FLIP_SHOWS[field]


@given(indexes, st.data())
@some
def test_a_flipped_bit_in_a_body_is_detected(index: int, data: st.DataObject) -> None:
    if not ENTRIES[index].body:
        index += 1
    byte = data.draw(st.integers(0, len(ENTRIES[index].body) - 1))
    with a_log() as log:
        damage.flip_body(log, index, byte, 1 << data.draw(st.integers(0, 7)))

        assert flagged(scan_log(log)) == {index: Flag.BAD_BODY_CRC}


@given(indexes, st.integers(1, 60), st.integers(0, 70), st.booleans(), windows)
@some
def test_zeroed_bytes_are_detected_in_exactly_the_entries_that_they_touch(
    first: int, count: int, skip: int, with_index_files: bool, window_bytes: int
) -> None:
    with a_log() as log:
        last = min(first + count - 1, log.places_in(log.place(first).segment)[-1].index)
        whole = {index: log.entry_bytes(index) for index in range(first, last + 1)}
        damage.zero(log, first, last, skip=min(skip, log.place(first).size - 1))
        touched = {index for index in whole if log.entry_bytes(index) != whole[index]}
        if not with_index_files:
            damage.remove_index(log)
        found = flags_of(scan_log(log, window_bytes=window_bytes))

    assert sorted(found) == list(range(COUNT))
    damaged = {index for index, flags in found.items() if flags & DAMAGED}
    assert damaged <= touched
    # A NOOP whose header checksum was zeroed looks like one without checksums.
    assert touched <= damaged | {index for index, flags in found.items() if flags & Flag.NO_CRC}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.binary(min_size=1, max_size=600))),
    windows,
)
@some
def test_garbage_in_files_never_makes_the_decoder_fail_or_miscount(
    garbage: list[tuple[float, float, bytes]], window_bytes: int
) -> None:
    with a_log() as log:
        paths = sorted(path for path in log.root.rglob("*") if path.is_file())
        for which, where, raw in garbage:
            path = paths[round(which * (len(paths) - 1))]
            at = round(where * (path.stat().st_size - len(raw)))
            damage.overwrite(path, max(0, at), raw)
        found = flags_of(scan_log(log, window_bytes=window_bytes))

    assert sorted(found) == list(range(COUNT))


@given(indexes, st.integers(0, 31), st.integers(0, 7))
@some
def test_a_bad_index_unit_is_flagged_and_hides_no_entry(index: int, byte: int, bit: int) -> None:
    with a_log() as log:
        damage.flip_unit(log, index, byte, 1 << bit)
        found = flagged(scan_log(log))

    assert found == {index: Flag.INDEX_FILE_DIFFERS}


@pytest.mark.parametrize("index", [57, 58, 59])
def test_a_bad_index_unit_flags_none_of_those_that_were_not_fetched_with_it(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_dledger.segments.BLOCK_ENTRIES_MAX", 60)
    with a_log(shape=small_shape(1 << 16)) as log:
        damage.flip_unit(log, index)
        found = flagged(scan_log(log))

    assert found == {index: Flag.INDEX_FILE_DIFFERS}


def test_every_entry_is_found_without_index_files() -> None:
    with a_log() as log:
        damage.remove_index(log)

        assert flags_of(scan_log(log)) == dict.fromkeys(range(COUNT), Flag.INDEX_FILE_DIFFERS)


def test_index_files_of_another_log_do_not_mislead_the_decoder() -> None:
    with a_log() as log, a_log(history(COUNT, seed=2)) as other:
        for path in (log.root / "index").iterdir():
            path.write_bytes((other.root / "index" / path.name).read_bytes())
        found = flags_of(scan_log(log))

    assert set(found.values()) <= {Flag(0), Flag.INDEX_FILE_DIFFERS}
    assert sorted(found) == list(range(COUNT))


def test_swapped_entries_are_both_flagged() -> None:
    with a_log([Entry(term=1, body=b"%04d" % number) for number in range(COUNT)]) as log:
        damage.swap(log, 41, 44)
        found = flagged(scan_log(log))

    assert set(found) == {41, 44}
    assert all(flags & Flag.BAD_INDEX for flags in found.values())


def test_a_truncated_file_lacks_the_entries_after_its_end() -> None:
    with a_log() as log:
        places = log.places_in(log.segments[1])
        damage.truncate(log, places[10].index)

        assert flagged(scan_log(log)) == dict.fromkeys(
            range(places[10].index, places[-1].index + 1), Flag.SHORT_FILE
        )


def test_a_missing_file_makes_only_its_own_entries_unreadable() -> None:
    with a_log() as log:
        places = log.places_in(log.segments[1])
        log.data_path(log.segments[1]).unlink()

        assert flagged(scan_log(log)) == dict.fromkeys(
            range(places[0].index, places[-1].index + 1), Flag.UNREADABLE
        )


def test_a_file_that_the_manifest_omits_leaves_a_gap() -> None:
    with a_log() as log:
        lost = {place.index for place in log.places_in(log.segments[1])}
        found = flags_of(scan_log(log, said=without_segment(manifest(log, "n0"), log.segments[1])))

    assert set(found) == set(range(COUNT)) - lost
    assert not any(found.values())


def test_a_decreasing_term_is_flagged_even_with_correct_checksums() -> None:
    with a_log(with_term(ENTRIES, 250, 2)) as log:
        assert flagged(scan_log(log)) == {250: Flag.TERM_BACK}


def test_a_different_history_with_correct_checksums_is_sound_by_itself() -> None:
    with a_log(with_other_body(ENTRIES, 77)) as log:
        assert not flagged(scan_log(log))


def test_entries_after_the_committed_index_are_not_read() -> None:
    with a_log() as log:
        damage.flip_body(log, 251)
        found = flags_of(scan_log(log, said=manifest(log, "n0", committed_index=250)))

    assert list(found) == list(range(251))
    assert not any(found.values())


def test_a_log_shorter_than_its_committed_index_yields_only_its_entries() -> None:
    with a_log() as log:
        served = manifest(log, "n0")
        longer = replace(served, status=replace(served.status, committed_index=LAST + 50))

        assert list(flags_of(scan_log(log, said=longer))) == list(range(COUNT))


def test_a_manifest_cannot_claim_more_lost_entries_than_the_bytes_can_hold() -> None:
    with a_log() as log:
        served = manifest(log, "n0")
        endless = replace(served, status=replace(served.status, committed_index=1 << 60))
        damage.remove_index(log)
        damage.zero(log, LAST, LAST)

        lost = set(flags_of(scan_log(log, said=endless))) - set(range(LAST))

    assert lost
    assert len(lost) <= 1 + log.place(LAST).size // 48


@given(indexes, st.integers(0, 80))
@some
def test_only_the_wanted_range_is_decoded_if_the_index_files_have_it(
    first: int, count: int
) -> None:
    with a_log() as log:
        last = min(first + count, LAST)
        found = flags_of(scan_log(log, wanted=IndexRange(first=first, last=last)))

    assert found == dict.fromkeys(range(first, last + 1), Flag(0))


def test_a_wanted_range_is_found_without_index_files() -> None:
    with a_log() as log:
        damage.remove_index(log)
        found = flags_of(scan_log(log, wanted=IndexRange(first=200, last=210)))

    assert set(range(200, 211)) <= set(found)


def test_entries_without_checksums_and_shifted_positions_are_only_flagged_no_crc() -> None:
    shape = replace(small_shape(), has_checksums=False, shift=4096)
    with a_log(ENTRIES, shape) as log:
        assert flags_of(scan_log(log)) == dict.fromkeys(range(COUNT), Flag.NO_CRC)


def test_the_next_entry_after_damage_is_found_by_its_shifted_position() -> None:
    shape = replace(small_shape(), has_checksums=False, shift=4096)
    with a_log(ENTRIES, shape) as log:
        damage.remove_index(log)
        damage.zero(log, 20, 24)
        found = flags_of(scan_log(log))

    assert {index for index, flags in found.items() if flags & DAMAGED} == set(range(20, 25))


def test_a_wrong_position_is_flagged_without_checksums() -> None:
    with a_log(ENTRIES, replace(small_shape(), has_checksums=False)) as log:
        damage.flip_header(log, 33, "pos", 6)
        found = flags_of(scan_log(log))

    assert {index for index, flags in found.items() if flags & Flag.BAD_POS} == {33}


def test_a_log_whose_prefix_was_removed_is_sound() -> None:
    shape = replace(small_shape(), first_index=1000, first_pos=40960)
    with a_log(ENTRIES, shape) as log:
        assert flags_of(scan_log(log)) == dict.fromkeys(range(1000, 1000 + COUNT), Flag(0))


def test_a_segment_may_begin_with_a_blank_that_java_left() -> None:
    shape = replace(small_shape(), has_checksums=False)
    with a_log(ENTRIES, shape) as log:
        cut = log.places_in(log.segments[0])[5]
        path = log.data_path(log.segments[0])
        raw = bytearray(path.read_bytes())
        raw[: cut.offset] = b"\xff\xff\xff\xff" + cut.offset.to_bytes(4, "big").ljust(
            cut.offset - 4, b"\0"
        )
        path.write_bytes(raw)
        kept = Log(
            root=log.root,
            places=log.places[5:],
            segment_bytes=log.segment_bytes,
            index_segment_bytes=log.index_segment_bytes,
        )

        assert flags_of(scan_log(kept)) == dict.fromkeys(range(5, COUNT), Flag.NO_CRC)


def test_an_empty_log_has_no_rows() -> None:
    with a_log([]) as log:
        assert scan_log(log) == []


def test_empty_files_are_skipped() -> None:
    with a_log() as log:
        served = manifest(log, "n0")
        empty = SegmentFile(name="9" * 20, size_bytes=4096, readable_bytes=0, first_index=-1)

        found = flags_of(scan_log(log, said=replace(served, data=[*served.data, empty])))

    assert len(found) == COUNT


def test_reading_back_a_written_log_finds_the_same_places() -> None:
    with a_log() as log:
        assert read_log(log.root) == log
