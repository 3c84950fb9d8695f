"""The header of the first entry of a log whose front was removed: it is proved, and mended."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.log import disk
from dledger_formats.log.chain_link import chain_crc_before
from dledger_node.errors import BorderDamagedError, StoreDamagedError
from dledger_node.healing.live_mending import LiveMender
from dledger_node.healing.mending import MendedTotals, Mender
from dledger_node.store.log.damaged_ranges import LogShape, damaged_ranges
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.served_segments import stored_bytes
from dledger_node.store.small_files.checkpoint import load_checkpoint
from dledger_store_files.command import Command
from dledger_store_files.contents import flush
from dledger_store_files.damage import flip, poke
from dledger_store_files.upkeep import remove_before

OpenStore = Callable[..., LogStore]

SEGMENT_BYTES = 4096
FIRST_LEFT = 54
"""The first entry of the third segment."""
COVERED = [at for at in range(disk.ENTRY_HEADER_SIZE) if at not in range(4, 8)]
"""The bytes of a header, apart from the size, which decides where the body ends."""
CHANNEL_AT, CHAIN_AT = 32, 36


class FolderPeer:
    """A peer with the same log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        return stored_bytes(self._folder / disk.DATA_FOLDER, name, at, size, 1 << 40)


def remove_front(store: LogStore, first_index: int = FIRST_LEFT) -> None:
    remove_before(store, first_index)


@pytest.fixture
def store(open_store: OpenStore) -> LogStore:
    """An open store without its front, whose entries up to 190 are known as committed."""
    store = open_store()
    store.append_bodies([b"%04d" % number * 25 for number in range(200)], 2)
    flush(store)
    store.save_checkpoint(190)
    remove_front(store)
    return store


@pytest.fixture
def twin(store: LogStore, folder: Path, tmp_path: Path) -> Path:
    """The folder of a peer with the same log."""
    return Path(shutil.copytree(folder, tmp_path / "twin"))


def hurt(folder: Path, at: int, index: int = FIRST_LEFT) -> None:
    """Flip a byte of an entry."""
    number, place = divmod(index, 27)
    flip(folder / disk.DATA_FOLDER, number * SEGMENT_BYTES + place * 148 + at)


def first_segment(folder: Path, index: int = FIRST_LEFT) -> bytes:
    return (folder / disk.DATA_FOLDER / disk.file_name(index // 27 * SEGMENT_BYTES)).read_bytes()


def mender_of(store: LogStore, folder: Path, *peers: Path) -> tuple[LiveMender, MendedTotals]:
    totals = MendedTotals()
    named = {f"n{number}": FolderPeer(peer) for number, peer in enumerate(peers, 1)}
    return LiveMender(shape_of(folder), store, named, totals), totals


def shape_of(folder: Path) -> LogShape:
    return LogShape(folder=folder, segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=320)


@given(
    bodies=st.lists(st.binary(max_size=40), min_size=2, max_size=3),
    before=st.integers(0, 0xFFFFFFFF),
    channel=st.integers(0, 0x7FFFFFFF),
)
def test_a_header_tells_the_chain_before_it(bodies: list[bytes], before: int, channel: int) -> None:
    packed = disk.pack_entries(
        bodies, magic=disk.NORMAL, first_index=7, term=3, pos=4096, previous_chain_crc=before,
        channels=[channel] * len(bodies),
    )  # fmt: skip
    first = disk.unpack_header(packed.data, 0)
    second = disk.unpack_header(packed.data, first.size)

    if first.chain_crc:
        assert chain_crc_before(first) == before
    if first.chain_crc and second.chain_crc:
        assert chain_crc_before(second) == first.chain_crc


def test_a_header_without_a_checksum_tells_nothing() -> None:
    header = disk.EntryHeader(disk.NORMAL, 48, 7, 3, 4096, 0, 0, 0, 0)
    assert chain_crc_before(header) is None


@pytest.mark.parametrize("at", COVERED)
def test_a_flipped_byte_of_the_first_header_is_found_at_the_start(
    store: LogStore, folder: Path, open_store: OpenStore, at: int
) -> None:
    store.close()
    hurt(folder, at)

    with pytest.raises(StoreDamagedError) as found:
        open_store(margin_bytes=0)

    assert disk.file_name(2 * SEGMENT_BYTES) in str(found.value)


@pytest.mark.parametrize("at", [CHANNEL_AT, CHAIN_AT])
def test_a_flipped_byte_of_the_first_header_is_found_after_several_starts(
    store: LogStore, folder: Path, open_store: OpenStore, at: int
) -> None:
    store.close()
    open_store().close()
    again = open_store()
    again.append_bodies([b"more"], 3)
    flush(again)
    again.save_checkpoint(200)
    again.close()
    hurt(folder, at)

    with pytest.raises(StoreDamagedError):
        open_store(margin_bytes=0)


def test_a_start_proves_the_first_header_of_a_log_of_an_earlier_release_from_then_on(
    store: LogStore, folder: Path, open_store: OpenStore
) -> None:
    store.close()
    path = folder / "checkpoint"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(x for x in lines if x[0] != "#" and "Chain" not in x) + "\n")
    assert load_checkpoint(folder) is not None
    open_store().close()
    hurt(folder, CHANNEL_AT)

    with pytest.raises(StoreDamagedError):
        open_store(margin_bytes=0)


def test_a_flipped_first_header_of_a_log_that_a_leader_replaced_is_found(
    open_store: OpenStore, folder: Path, tmp_path: Path
) -> None:
    leader = open_store(tmp_path / "leader")
    leader.append_bodies([b"%04d" % number * 25 for number in range(200)], 2)
    views, last_index = leader.read_range(FIRST_LEFT, 60, 1 << 20)
    store = open_store()
    block = store.front.check(
        b"".join(views), first_index=FIRST_LEFT, last_index=last_index, term=2
    )
    store.replace(block)
    flush(store)
    store.save_checkpoint(last_index)
    store.close()
    open_store().close()
    hurt(folder, CHANNEL_AT)

    with pytest.raises(StoreDamagedError):
        open_store(margin_bytes=0)


@pytest.mark.parametrize(
    ("at", "read"),
    [(CHANNEL_AT, FIRST_LEFT), (CHAIN_AT, FIRST_LEFT), (CHAIN_AT, FIRST_LEFT + 1)],
)
def test_a_running_member_mends_its_first_header_from_one_peer(
    store: LogStore, folder: Path, twin: Path, at: int, read: int
) -> None:
    sound = first_segment(folder)
    store.distrust()
    hurt(folder, at)
    with pytest.raises(StoreDamagedError):
        store.entry(read)
    assert store.damage is not None
    mender, totals = mender_of(store, folder, twin)

    mender.mend_near(store.damage)

    assert (totals.ranges, totals.entries) == (1, 1)
    assert first_segment(folder) == sound
    store.entry(FIRST_LEFT)


def test_scrubbing_mends_the_first_header_and_believes_no_peer_that_rotted_there(
    store: LogStore, folder: Path, twin: Path, tmp_path: Path
) -> None:
    rotten = Path(shutil.copytree(twin, tmp_path / "rotten"))
    sound = first_segment(folder)
    hurt(folder, CHANNEL_AT)
    hurt(rotten, CHANNEL_AT)
    mender, totals = mender_of(store, folder, rotten, twin)
    place = mender.first_place()
    assert place is not None

    mender.step(place, 1 << 20)

    assert totals.entries == 1
    assert first_segment(folder) == sound


@pytest.mark.parametrize("at", [CHANNEL_AT, CHAIN_AT])
def test_a_member_out_of_service_mends_its_first_header_from_one_peer(
    store: LogStore, folder: Path, twin: Path, open_store: OpenStore, at: int
) -> None:
    store.close()
    sound = first_segment(folder)
    hurt(folder, at)
    checkpoint = load_checkpoint(folder)
    mender = Mender(shape_of(folder), {"n1": FolderPeer(twin)}, create_files=True)

    found = list(damaged_ranges(shape_of(folder), checkpoint))
    assert checkpoint is not None
    mended = [mender.mend(each, checkpoint) for each in found]

    assert [str(each) for each in mended] == [f"entry {FIRST_LEFT} in place: 148 bytes from n1"]
    assert first_segment(folder) == sound
    open_store(margin_bytes=0)


LAST_GONE, FIRST_KEPT = 80, 81
"""The entries at the end of the third segment, and at the beginning of the fourth."""


def hurt_header(folder: Path, index: int, *, whole: bool) -> None:
    """Overwrite all of an entry's header, or the fields that only the chain covers."""
    number, place = divmod(index, 27)
    at, size = (0, disk.ENTRY_HEADER_SIZE) if whole else (CHANNEL_AT, 8)
    poke(folder / disk.DATA_FOLDER, number * SEGMENT_BYTES + place * 148 + at, b"\xa5" * size)


def hurt_body(folder: Path, index: int) -> None:
    hurt(folder, 100, index)


def saved_chain_crc(folder: Path) -> int | None:
    checkpoint = load_checkpoint(folder)
    assert checkpoint is not None
    assert checkpoint.begin_index == FIRST_KEPT
    return checkpoint.begin_chain_crc


@pytest.mark.parametrize("at", [CHANNEL_AT, CHAIN_AT])
def test_a_front_goes_whose_last_entry_rotted_if_its_neighbours_prove_the_next_one(
    store: LogStore, folder: Path, at: int
) -> None:
    sound = store.entry(LAST_GONE)[0]
    hurt(folder, at, LAST_GONE)

    remove_front(store, FIRST_KEPT)

    assert saved_chain_crc(folder) == sound.chain_crc
    assert store.entry(FIRST_KEPT)[0].index == FIRST_KEPT


@pytest.mark.parametrize("whole", [False, True])
def test_a_rotten_last_entry_is_mended_before_the_front_goes(
    store: LogStore, folder: Path, twin: Path, whole: bool
) -> None:
    """What is left would begin with a header that the lost link cannot prove."""
    sound = store.entry(LAST_GONE)[0]
    hurt_header(folder, LAST_GONE, whole=whole)

    with pytest.raises(BorderDamagedError) as found:
        store.front.save_begin(FIRST_KEPT)

    assert found.value.index == LAST_GONE
    assert store.front.removals[-1].last_index < LAST_GONE
    mender, totals = mender_of(store, folder, twin)
    mender.mend_near(found.value)
    assert totals.entries == 1
    remove_front(store, FIRST_KEPT)
    assert saved_chain_crc(folder) == sound.chain_crc


@pytest.mark.parametrize("whole", [False, True])
def test_a_front_goes_whose_rotten_last_entry_nobody_can_mend(
    store: LogStore, folder: Path, open_store: OpenStore, whole: bool
) -> None:
    sound = store.entry(LAST_GONE)[0]
    hurt_header(folder, LAST_GONE, whole=whole)
    store.front.unmended_index = LAST_GONE

    remove_front(store, FIRST_KEPT)

    assert saved_chain_crc(folder) == sound.chain_crc
    store.close()
    assert open_store().entry(FIRST_KEPT)[0].index == FIRST_KEPT


def test_another_border_than_the_unmended_one_is_mended_first(
    store: LogStore, folder: Path
) -> None:
    hurt_header(folder, LAST_GONE, whole=True)
    store.front.unmended_index = LAST_GONE + 27

    with pytest.raises(BorderDamagedError):
        store.front.save_begin(FIRST_KEPT)


def test_a_full_volume_waits_for_no_mending(store: LogStore, folder: Path) -> None:
    sound = store.entry(LAST_GONE)[0]
    hurt_header(folder, LAST_GONE, whole=True)

    store.front.save_begin(FIRST_KEPT, mend_first=False)

    assert saved_chain_crc(folder) == sound.chain_crc


@pytest.mark.parametrize(
    "also", [hurt_body, partial(hurt, at=CHAIN_AT), partial(hurt_header, whole=True)]
)
def test_two_rotten_entries_at_a_border_are_not_both_believed(
    store: LogStore, folder: Path, also: Callable[..., None]
) -> None:
    """The next start must not take the first header for proved."""
    hurt_header(folder, LAST_GONE, whole=True)
    also(folder, index=FIRST_KEPT)

    store.front.save_begin(FIRST_KEPT, mend_first=False)

    assert saved_chain_crc(folder) is None


def test_a_first_entry_that_rotted_is_mended_before_the_front_goes(
    store: LogStore, folder: Path, twin: Path
) -> None:
    hurt(folder, CHAIN_AT, FIRST_KEPT)

    with pytest.raises(StoreDamagedError) as found:
        store.front.save_begin(FIRST_KEPT)

    assert not isinstance(found.value, BorderDamagedError), "this entry stays"
    assert found.value.index == FIRST_KEPT
    mender, totals = mender_of(store, folder, twin)
    mender.mend_near(found.value)
    assert totals.entries == 1
    remove_front(store, FIRST_KEPT)
    assert store.entry(FIRST_KEPT)[0].index == FIRST_KEPT


@pytest.mark.parametrize(
    "hurts",
    [partial(hurt, at=CHANNEL_AT), partial(hurt, at=CHAIN_AT), partial(hurt_header, whole=True)],
)
def test_a_full_volume_keeps_the_proof_against_a_first_entry_that_rotted(
    store: LogStore, folder: Path, twin: Path, hurts: Callable[..., None]
) -> None:
    sound = store.entry(LAST_GONE)[0]
    hurts(folder, index=FIRST_KEPT)

    begin = store.front.save_begin(FIRST_KEPT, mend_first=False)
    store.front.delete(store.front.forget_before(begin, mend_first=False))

    assert saved_chain_crc(folder) == sound.chain_crc
    mender, totals = mender_of(store, folder, twin)
    start = mender.first_place()
    assert start is not None
    mender.step(start, 1 << 20)
    assert totals.entries == 1
    assert store.entry(FIRST_KEPT)[0].index == FIRST_KEPT


def test_a_removal_after_a_larger_one_that_was_only_saved_keeps_its_proof(
    store: LogStore, folder: Path
) -> None:
    sound = store.entry(LAST_GONE)[0]
    store.front.save_begin(FIRST_KEPT + 27)
    begin = store.front.save_begin(FIRST_KEPT)
    hurt_header(folder, LAST_GONE, whole=True)

    store.front.delete(store.front.forget_before(begin))

    assert store.front._writer.begin == (FIRST_KEPT, sound.chain_crc)


def test_the_command_names_the_first_entry(
    store: LogStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.close()
    hurt(folder, CHANNEL_AT)
    command = Command(capsys)

    assert command("verify", folder) == 4
    found = command.finding("damaged_entries")
    assert (found["firstIndex"], found["lastIndex"]) == (FIRST_LEFT, FIRST_LEFT)
