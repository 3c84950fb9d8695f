"""Entries that no sound member writes, under right checksums; and sound ones that look odd."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.log import canaries, disk, memberships
from dledger_logs import damage
from dledger_logs.histories import TERM_ENTRIES, history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.write import Entry, Shape, write_log
from dledger_logs.zero_crcs import body_with_crc_0
from dledger_scan.local_audit import local_audit
from dledger_scan.scanning import flagged, flags_of, scan_log
from pyspark_dledger.layout import Flag

COUNT = 300
ENTRIES = history(COUNT)
LAST = COUNT - 1


def findings(summary: AuditSummary) -> set[tuple[str, str, int, int]]:
    return {(f.check, f.member, f.first_index, f.last_index) for f in summary.first_findings}


def alone(folder: Path, entries: list[Entry], shape: Shape | None = None) -> Log:
    return write_log(folder / "n0", entries, shape or small_shape())


def changed(index: int, **fields: object) -> list[Entry]:
    entries = list(ENTRIES)
    entries[index] = replace(entries[index], **fields)  # type: ignore[arg-type]
    return entries


@pytest.mark.parametrize("index", [1, 57, LAST])
def test_an_uncovered_entry_among_covered_ones_of_its_term_is_damage(
    index: int, tmp_path: Path
) -> None:
    log = alone(tmp_path, changed(index, is_covered=False))

    summary = local_audit({"n0": log})

    assert findings(summary) == {("uncovered", "n0", index, index)}
    assert summary.verdict is Verdict.DAMAGED


@pytest.mark.parametrize("window_bytes", [400, 700, 5000])
def test_an_uncovered_run_is_found_wherever_the_blocks_of_the_decoder_end(
    window_bytes: int, tmp_path: Path
) -> None:
    entries = [replace(entry, is_covered=not 20 <= k < 60) for k, entry in enumerate(ENTRIES)]
    log = alone(tmp_path, entries)

    summary = local_audit({"n0": log}, window_bytes=window_bytes)

    assert ("uncovered", "n0") in {(check, member) for check, member, *_ in findings(summary)}
    assert {(first, last) for _, _, first, last in findings(summary)} != {(0, LAST)}


def test_terms_that_java_wrote_between_ours_are_sound(tmp_path: Path) -> None:
    """Each leader covers all entries of its term, or none."""
    entries = [
        replace(entry, is_covered=(k // TERM_ENTRIES) % 2 == 0) for k, entry in enumerate(ENTRIES)
    ]
    log = alone(tmp_path, entries)

    summary = local_audit({"n0": log})

    assert summary.verdict is Verdict.SOUND
    assert {check for check, *_ in findings(summary)} == {"no_crc"}


def test_a_checksum_that_comes_out_as_0_covers_all_the_same(tmp_path: Path) -> None:
    """A body whose CRC-32 is 0, which the format stores as "not covered"."""
    zero = body_with_crc_0()
    log = alone(tmp_path, changed(57, body=zero))

    assert disk.body_crc(zero) == 0
    assert flags_of(scan_log(log)) == dict.fromkeys(range(COUNT), Flag(0))


def test_a_term_above_the_members_own_is_found(tmp_path: Path) -> None:
    log = alone(tmp_path, ENTRIES)
    served = manifest(log, "n0")
    served = replace(served, status=replace(served.status, term=2))

    found = findings(local_audit({"n0": log}, {"n0": served}))

    assert {check for check, *_ in found} == {"term_above"}
    assert min(first for _, _, first, _ in found) == 200
    assert max(last for *_, last in found) == LAST


@pytest.mark.parametrize("index", [1, 100, LAST])
def test_a_canary_is_sound_anywhere_in_a_term(index: int, tmp_path: Path) -> None:
    log = alone(
        tmp_path, changed(index, magic=disk.NOOP, channel=canaries.CANARY_CHANNEL, body=b"")
    )

    summary = local_audit({"n0": log})

    assert (findings(summary), summary.verdict) == (set(), Verdict.SOUND)


def test_a_noop_with_a_body_is_found(tmp_path: Path) -> None:
    log = alone(tmp_path, changed(100, body=b"hello"))

    assert findings(local_audit({"n0": log})) == {("bad_noop", "n0", 100, 100)}


@pytest.mark.parametrize(
    "body", [b"", b"hello", b'{"voters":["n1","n0"],"learners":[]}', b'{"voters":[]}']
)
def test_a_membership_that_does_not_parse_is_found(body: bytes, tmp_path: Path) -> None:
    entries = changed(100, body=body, channel=memberships.MEMBERSHIP_CHANNEL)

    summary = local_audit({"n0": alone(tmp_path, entries)})

    assert findings(summary) == {("bad_membership", "n0", 100, 100)}


@pytest.mark.parametrize(
    ("skip", "raw"), [(0, b"\0\0\0\0"), (4, b"\0\0\0\1"), (8, b"x"), (0, b"\0\0\0\1")]
)
def test_a_segment_that_does_not_end_with_a_blank_is_found(
    skip: int, raw: bytes, tmp_path: Path
) -> None:
    log = alone(tmp_path, ENTRIES, small_shape(5000))
    name = log.segments[1]
    last = log.places_in(name)[-1]
    end = last.offset + last.size
    if log.segment_bytes - end <= 8:
        raw, skip = b"\0\0\0\0", 0
    damage.overwrite(log.data_path(name), end + skip, raw)

    assert findings(local_audit({"n0": log})) == {("bad_blank", "n0", last.index, last.index)}


@pytest.mark.parametrize("odd_byte", [False, True])
@pytest.mark.parametrize("more_bytes", range(10))
def test_a_blank_is_read_as_a_whole_wherever_a_window_ends(
    more_bytes: int, odd_byte: bool, tmp_path: Path
) -> None:
    log = alone(tmp_path, ENTRIES, small_shape(5000))
    last = log.places_in(log.segments[0])[-1]
    end = last.offset + last.size
    assert end + 20 < log.segment_bytes
    if odd_byte:
        damage.overwrite(log.data_path(last.segment), end + 20, b"x")

    found = flagged(scan_log(log, window_bytes=end + more_bytes))

    assert found == ({last.index: Flag.BAD_BLANK} if odd_byte else {})


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("index", [1, 57, LAST])
def test_an_unknown_magic_under_right_checksums_is_no_damage(
    index: int, with_index: bool, tmp_path: Path
) -> None:
    log = alone(tmp_path, changed(index, magic=7))
    if not with_index:
        damage.remove_index(log)

    summary = local_audit({"n0": log})

    unknown = {each for each in findings(summary) if each[0] != "index_file_differs"}
    assert unknown == {("unknown_entry", "n0", index, index)}
    assert summary.verdict is Verdict.INCOMPLETE


def test_a_bad_index_unit_deep_in_the_log_is_damage_and_near_its_end_is_not(
    tmp_path: Path,
) -> None:
    entries = history(3000, body_bytes=(2500, 2600))
    log = alone(tmp_path, entries, Shape(segment_bytes=1 << 20, index_segment_bytes=32 * 5000))
    damage.flip_unit(log, 10)
    damage.flip_unit(log, 2990)

    summary = local_audit({"n0": log})

    assert findings(summary) == {
        ("bad_index_unit", "n0", 10, 10),
        ("index_file_differs", "n0", 2990, 2990),
    }
    assert summary.verdict is Verdict.DAMAGED
    assert "empty its folder" in summary.first_findings[0].detail


def test_an_index_unit_has_the_magic_of_its_entry_or_that_of_java(tmp_path: Path) -> None:
    """Java writes 1 for a no-op, too."""
    log = alone(tmp_path, ENTRIES)
    no_op = next(n for n, each in enumerate(ENTRIES) if n and each.magic == disk.NOOP)
    damage.flip_unit(log, no_op, byte=3, mask=3)
    damage.flip_unit(log, 57, byte=3, mask=3)
    damage.flip_unit(log, 99, byte=0, mask=8)

    assert findings(local_audit({"n0": log})) == {
        ("index_file_differs", "n0", 57, 57),
        ("index_file_differs", "n0", 99, 99),
    }


@pytest.mark.parametrize("window_bytes", [400, 700, 4096])
def test_a_shift_of_javas_is_sound_wherever_a_block_ends(window_bytes: int, tmp_path: Path) -> None:
    """Each run of one shift begins at another entry, so that some begin on a block's last one."""
    for begin in range(20, 44, 2):
        log = _shifted(tmp_path / str(begin), begin)
        runs = scan_log(log, window_bytes=window_bytes)

        assert flags_of(runs) == dict.fromkeys(range(120), Flag.NO_CRC)


def test_a_wrong_position_is_found_wherever_a_block_ends(tmp_path: Path) -> None:
    for index in range(20, 44):
        log = _shifted(tmp_path / str(index), 1 << 30)
        damage.flip_header(log, index, "pos", 6)
        is_last = log.places_in(log.place(index).segment)[-1].index == index
        found = {
            at for at, flags in flags_of(scan_log(log, window_bytes=700)).items()
            if flags & Flag.BAD_POS
        }  # fmt: skip

        assert found == (set() if is_last else {index})


@pytest.mark.parametrize("window_bytes", [400, 4096])
@pytest.mark.parametrize("bit", [0, 6, 40, 63])
def test_a_wrong_position_behind_a_removed_front_is_found(
    bit: int, window_bytes: int, tmp_path: Path
) -> None:
    """Nothing is known of the entry before it, and members may hold an entry at other positions."""
    log = damage.remove_front(write_log(tmp_path / "log", history(120), small_shape()), 2)
    first = log.first_index
    assert flags_of(scan_log(log, window_bytes=window_bytes)) == dict.fromkeys(range(first, 120), 0)
    damage.flip_header(log, first, "pos", bit)

    found = flags_of(scan_log(log, window_bytes=window_bytes))

    assert found == dict.fromkeys(range(first, 120), 0) | {first: Flag.BAD_POS}


def test_a_shift_of_javas_may_begin_behind_a_removed_front(tmp_path: Path) -> None:
    log = damage.remove_front(_shifted(tmp_path, 1 << 30), 2)
    for place in log.places[1:]:
        path = log.data_path(place.segment)
        damage.overwrite(path, place.offset + 24, struct.pack(">q", place.pos + 4096))

    assert set(flags_of(scan_log(log)).values()) == {Flag.NO_CRC}


def _shifted(folder: Path, begin: int) -> Log:
    """Write a log of Java's whose entries from `begin` on keep the positions of their leader."""
    shape = replace(small_shape(), has_checksums=False)
    log = write_log(folder / "log", history(120), shape)
    for place in log.places[begin:]:
        path = log.data_path(place.segment)
        damage.overwrite(path, place.offset + 24, struct.pack(">q", place.pos + 4096))
    return log
