"""The file of the table of producers: saved, damaged, late, of another log."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.channels import ChannelRun, channel_of
from dledger_node.errors import StoreFullError
from dledger_node.store.derived import producers_file
from dledger_node.store.derived.log_producers import SAVE_ENTRIES
from dledger_node.store.derived.producer import Producer
from dledger_node.store.derived.producers import Finding, Producers
from dledger_node.store.derived.producers_file import Image
from dledger_node.store.log.log_store import LogStore
from dledger_store_files.producers import (
    EXPECTED,
    append,
    appended_twice,
    found,
    mark_stable,
    register,
)
from dledger_store_files.upkeep import remove_before

OpenStore = Callable[..., LogStore]


@pytest.mark.parametrize("at", [0, 9, 25, 60, -1])
def test_a_damaged_producers_file_counts_as_missing(
    open_store: OpenStore, folder: Path, at: int
) -> None:
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


def test_the_producers_file_of_another_log_is_ignored(
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
    """Remove all segments but the last; return the first remaining entry."""
    first_index = store.front.sealed_segments()[-1].last_index + 1
    remove_before(store, first_index)
    return first_index


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_log_without_its_front_uses_its_producers_file(
    open_store: OpenStore, folder: Path, is_saved: bool
) -> None:
    store = open_store()
    first, _ = appended_twice(store)
    mark_stable(store, 14)
    begin_index = store.front.sealed_segments()[-1].last_index + 1
    image = store.producers.image_due(before_index=begin_index)
    assert image is not None, "the table must be saved before entries are removed"
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


def test_a_producers_file_that_ends_before_the_log_begins_is_ignored(
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

    assert again.producers.table.find(first, 4) is Finding.UNKNOWN_PRODUCER, (
        "not NEW: entry 12 has it"
    )


def test_saving_on_a_full_volume_raises_store_full_error(
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
    table.note(ChannelRun(0, disk.NOOP, channel_of(1, 0)))
    table.note(ChannelRun(1, disk.NORMAL, channel_of(1, 1)))
    return next(iter(table))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("number", 0), ("number", 1025), ("identity", -1), ("last_index", 3), ("highest", -1),
        ("highest", 0), ("identity", 2),
    ],
)  # fmt: skip
def test_a_producer_with_impossible_values_is_refused_although_the_checksum_matches(
    key: str, value: int
) -> None:
    producer = good()
    setattr(producer, key, value)
    image = Image(index=2, term=1, chain_crc=0, producers=[producer])

    with pytest.raises(ValueError, match="impossible values"):
        producers_file.decode(producers_file.encode(image))


def test_two_producers_with_the_same_number_are_refused() -> None:
    image = Image(index=2, term=1, chain_crc=0, producers=[good(), good()])

    with pytest.raises(ValueError, match="two producers"):
        producers_file.decode(producers_file.encode(image))


def test_an_older_image_does_not_replace_a_newer_file(open_store: OpenStore) -> None:
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


def test_a_producers_file_whose_entry_cannot_be_found_is_ignored(
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
