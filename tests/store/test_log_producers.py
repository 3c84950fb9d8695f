"""The table of producers beside a real log: written, pushed, cut, restarted, without its file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.channels import ChannelEntry, channel_of
from dledger_node.errors import StoreFullError
from dledger_node.store.derived import producers_file
from dledger_node.store.derived.log_producers import SAVE_ENTRIES
from dledger_node.store.derived.producers import Finding, Producer, Producers
from dledger_node.store.derived.producers_file import Image
from dledger_node.store.log.log_store import LogStore

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]


def register(store: LogStore, term: int = 1) -> int:
    number = store.producers.table.next_number()
    return store.append_bodies([b""], term, [channel_of(number, 0)], disk.NOOP)[0]


def append(store: LogStore, producer: int, *sequences: int, term: int = 1) -> None:
    channels = [store.producers.table.channel(producer, sequence) for sequence in sequences]
    bodies = [b"%d of %d" % (sequence, producer) for sequence in sequences]
    store.append_bodies(bodies, term, channels)


def mark_stable(store: LogStore, index: int) -> None:
    """Let the log be durable and committed, as the server tells."""
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)
    store.save_checkpoint(index)
    store.producers.table.mark_stable(index)


def found(store: LogStore, producer: int, last: int) -> list[int | Finding]:
    return [store.producers.table.find(producer, sequence) for sequence in range(1, last + 1)]


def appended_twice(store: LogStore) -> tuple[int, int]:
    """Two producers with appends among ordinary ones, over several segments."""
    store.append_bodies([bytes(900)] * 3, term=1)
    first = register(store)
    append(store, first, 1, 2, 3)
    store.append_bodies([bytes(900)] * 3, term=1)
    second = register(store)
    append(store, second, 1)
    append(store, first, 4, 6)
    append(store, first, 5)
    return first, second


EXPECTED = ([4, 5, 6, 12, 14, 13], [11])


def test_the_table_says_where_appends_are(open_store: OpenStore) -> None:
    store = open_store()

    first, second = appended_twice(store)

    assert (first, second) == (3, 10)
    assert (found(store, 3, 6), found(store, 10, 1)) == EXPECTED
    assert [store.entry(index)[1] for index in found(store, 3, 6)] == [
        b"%d of 3" % sequence for sequence in range(1, 7)
    ]
    assert store.entry(13)[0].channel == channel_of(1, 6)


@pytest.mark.parametrize("stable_index", [-1, 3, 9, 12, 14])
@pytest.mark.parametrize("is_saved", [False, True])
def test_after_a_crash_it_is_what_it_was(
    open_store: OpenStore, crashed: Crashed, stable_index: int, is_saved: bool
) -> None:
    store = open_store()
    appended_twice(store)
    if stable_index >= 0:
        mark_stable(store, stable_index)
    if is_saved:
        image = store.producers.image_due(before_index=SAVE_ENTRIES)
        assert (image is None) == (stable_index < 0)
        if image is not None:
            store.producers.save(image)

    again = open_store(crashed(store))

    assert (found(again, 3, 6), found(again, 10, 1)) == EXPECTED
    assert again.producers.saved_index == (stable_index if is_saved else -1)


def test_an_orderly_stop_saves_it(open_store: OpenStore, folder: Path) -> None:
    store = open_store()
    appended_twice(store)
    mark_stable(store, 14)
    store.close()

    again = open_store()

    assert again.producers.saved_index == 14
    assert (found(again, 3, 6), found(again, 10, 1)) == EXPECTED


def test_a_small_log_without_producers_keeps_no_file(open_store: OpenStore, folder: Path) -> None:
    store = open_store()
    store.append_bodies([b"x"] * 20, term=1)
    mark_stable(store, 19)
    store.close()

    assert not (folder / producers_file.FILE_NAME).exists()


@pytest.mark.parametrize("stable_index", [-1, 5])
def test_what_is_cut_is_forgotten(open_store: OpenStore, stable_index: int) -> None:
    store = open_store()
    appended_twice(store)
    store.producers.table.mark_stable(stable_index)

    store.truncate(11)

    assert found(store, 3, 4) == [4, 5, 6, Finding.NEW]
    assert found(store, 10, 1) == [Finding.NEW]
    append(store, 3, 4, term=2)
    assert found(store, 3, 4) == [4, 5, 6, 11]


def test_what_is_cut_too_deep_to_be_taken_back_is_read_again(
    open_store: OpenStore,
) -> None:
    store = open_store()
    store.producers.table = Producers(undo_max=2)
    appended_twice(store)

    store.truncate(6)

    assert found(store, 3, 3) == [4, 5, Finding.NEW]
    assert found(store, 10, 1) == [Finding.UNKNOWN_PRODUCER]


@pytest.mark.parametrize("held", [0, 4, 12])
def test_a_follower_notes_what_is_pushed_and_no_more(
    open_store: OpenStore, memory_path: Path, held: int
) -> None:
    leader, follower = open_store(), open_store(memory_path / "follower")
    appended_twice(leader)

    for previous, last in ((-1, held), (-1, 13), (10, 14)):
        data = b"".join(leader.read_range(previous + 1, last, 1 << 20)[0])
        block = follower.check_block(
            data, previous_index=previous, previous_term=1 if previous >= 0 else -1,
            last_index=last, term=1,
        )  # fmt: skip
        begin = follower.end_index + 1
        if begin <= last:
            follower.append_block(block, first_index=begin, last_index=last)

    assert (found(follower, 3, 6), found(follower, 10, 1)) == EXPECTED


@pytest.mark.parametrize("at", [0, 9, 25, 60, -1])
def test_a_damaged_file_is_as_good_as_none(open_store: OpenStore, folder: Path, at: int) -> None:
    store = open_store()
    appended_twice(store)
    mark_stable(store, 14)
    store.close()
    path = folder / producers_file.FILE_NAME
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)

    again = open_store()

    assert again.producers.saved_index == -1
    assert (found(again, 3, 6), found(again, 10, 1)) == EXPECTED


def test_the_file_of_another_log_is_not_believed(
    open_store: OpenStore, folder: Path, memory_path: Path
) -> None:
    other = open_store(memory_path / "other")
    other.append_bodies([b"another's"] * 3, term=1)
    stranger = register(other)
    append(other, stranger, *range(1, 12))
    mark_stable(other, 14)
    other.close()
    store = open_store()
    appended_twice(store)
    mark_stable(store, 14)
    store.close()
    name = producers_file.FILE_NAME
    (folder / name).write_bytes((memory_path / "other" / name).read_bytes())

    again = open_store()

    assert (found(again, 3, 6), found(again, 10, 1)) == EXPECTED


def remove_front(store: LogStore) -> int:
    """Remove the segments before the last; returns the first entry that is left."""
    first_index = store.front.sealed_segments()[-1].last_index + 1
    store.front.save_begin(first_index)
    store.front.delete(store.front.forget_before(first_index))
    return first_index


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_log_without_its_front_knows_what_its_file_tells(
    open_store: OpenStore, folder: Path, is_saved: bool
) -> None:
    store = open_store()
    first, _ = appended_twice(store)
    mark_stable(store, 14)
    begin_index = store.front.sealed_segments()[-1].last_index + 1
    image = store.producers.image_due(before_index=begin_index)
    assert image is not None, "it must be saved before entries are removed"
    if is_saved:
        store.producers.save(image)
    assert first < remove_front(store) == begin_index
    late = register(store)
    append(store, late, 1, 2)
    mark_stable(store, 17)
    store.close()
    if not is_saved:
        (folder / producers_file.FILE_NAME).unlink()

    again = open_store()

    assert found(again, late, 2) == [16, 17]
    unknown = [Finding.UNKNOWN_PRODUCER] * 6
    assert found(again, first, 6) == (EXPECTED[0] if is_saved else unknown)
    assert again.producers.table.next_number() == (4 if is_saved else 1)


def test_a_file_that_ends_before_the_log_begins_is_not_believed(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    first, _ = appended_twice(store)
    mark_stable(store, 4)
    image = store.producers.image_due(before_index=SAVE_ENTRIES)
    assert image is not None
    mark_stable(store, 14)
    begin_index = remove_front(store)
    assert image.index < begin_index - 1
    store.close()
    producers_file.save(folder, image)

    again = open_store()

    assert again.producers.table.find(first, 4) is Finding.UNKNOWN_PRODUCER, "not NEW: it is 12"


def test_who_registered_before_a_damage_is_unknown_and_who_came_later_is_not(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    first, second = appended_twice(store)
    place = store.position(5).pos
    mark_stable(store, 14)
    store.close()
    (folder / producers_file.FILE_NAME).unlink()
    path = folder / "data" / disk.file_name(place // 4096 * 4096)
    with path.open("r+b") as file:
        file.seek(place % 4096 + 35)  # the sequence in its channel
        file.write(b"\x63")

    again = open_store(margin_bytes=500)

    assert again.producers.table.find(first, 1) is Finding.UNKNOWN_PRODUCER
    assert found(again, second, 1) == [11]


def test_saving_on_a_full_volume_is_told_apart(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    store = open_store()
    appended_twice(store)
    mark_stable(store, 14)
    image = store.producers.image_due(before_index=SAVE_ENTRIES)
    assert image is not None

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StoreFullError):
        store.producers.save(image)

    assert store.producers.saved_index == -1


def good() -> Producer:
    table = Producers()
    table.note(ChannelEntry(0, disk.NOOP, channel_of(1, 0)))
    table.note(ChannelEntry(1, disk.NORMAL, channel_of(1, 1)))
    return next(iter(table))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("number", 0), ("number", 1025), ("identity", -1), ("last_index", 3), ("highest", -1),
        ("highest", 0), ("identity", 2),
    ],
)  # fmt: skip
def test_a_producer_that_cannot_be_is_not_believed_although_its_checksum_matches(
    key: str, value: int
) -> None:
    producer = good()
    setattr(producer, key, value)
    image = Image(index=2, term=1, chain_crc=0, producers=[producer])

    with pytest.raises(ValueError, match="impossible values"):
        producers_file.decode(producers_file.encode(image))


def test_two_producers_with_one_number_are_not_believed() -> None:
    image = Image(index=2, term=1, chain_crc=0, producers=[good(), good()])

    with pytest.raises(ValueError, match="two producers"):
        producers_file.decode(producers_file.encode(image))


def test_a_damaged_index_far_from_the_end_hides_who_registered_before(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    first, second = appended_twice(store)
    mark_stable(store, 14)
    store.close()
    (folder / producers_file.FILE_NAME).unlink()
    unit = disk.INDEX_UNIT.pack(disk.NORMAL, 1 << 40, 900, 5, 1)
    path = folder / "index" / disk.file_name(0)
    with path.open("r+b") as file:
        file.seek(5 * disk.INDEX_UNIT_SIZE)
        file.write(unit)

    again = open_store(margin_bytes=500)

    assert again.producers.table.find(first, 1) is not Finding.NEW
    assert again.producers.table.find(second, 1) in (11, Finding.UNKNOWN_PRODUCER)


def test_a_file_that_comes_late_does_not_replace_a_newer_one(open_store: OpenStore) -> None:
    store = open_store()
    appended_twice(store)
    mark_stable(store, 4)
    late = store.producers.image_due(before_index=SAVE_ENTRIES)
    mark_stable(store, 14)
    image = store.producers.image_due(before_index=SAVE_ENTRIES)
    assert late is not None
    assert image is not None

    store.producers.save(image)
    store.producers.save(late)

    assert store.producers.saved_index == 14


def test_a_file_whose_entry_cannot_be_found_is_not_believed(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    appended_twice(store)
    mark_stable(store, 5)
    image = store.producers.image_due(before_index=SAVE_ENTRIES)
    assert image is not None
    store.producers.save(image)
    mark_stable(store, 14)
    store.close()
    producers_file.save(folder, image)
    path = folder / "index" / disk.file_name(0)
    with path.open("r+b") as file:
        file.seek(5 * disk.INDEX_UNIT_SIZE)
        file.write(bytes(8))

    again = open_store(margin_bytes=500)

    assert again.producers.saved_index == -1
