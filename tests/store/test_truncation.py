import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import StoreError
from dledger_node.store.log.log_store import LogStore
from dledger_store_files.contents import bodies_of, flush

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]


def test_a_truncated_log_ends_before_the_entry_and_continues_there(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.truncate(11)
    assert (store.end_index, store.durable_index, store.term_runs()) == (10, 10, [(0, 1)])

    store.append_bodies([b"new"], term=2)

    assert bodies_of(store) == [*BODIES[:11], b"new"]
    assert store.term_runs() == [(0, 1), (11, 2)]


@pytest.mark.parametrize("first_index", [0, 1, 9, 10, 11, 25, 39])
def test_old_entries_do_not_reappear_after_a_new_one(
    open_store: OpenStore, first_index: int
) -> None:
    """Java keeps the bytes after a cut; a new entry of the old length would bring them back."""
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.truncate(first_index)
    store.append_bodies([BODIES[first_index][::-1]], term=2)
    store.close()

    again = open_store()

    assert again.end_index == first_index
    assert again.recovery.cut_bytes == 0


@pytest.mark.parametrize("first_index", [0, 5, 22])
def test_every_byte_after_a_cut_is_zero(
    open_store: OpenStore, folder: Path, first_index: int
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.truncate(first_index)
    end = 0
    if first_index:
        unit = store.position(first_index - 1)
        end = unit.pos + unit.size

    data = b"".join(path.read_bytes() for path in sorted((folder / "data").iterdir()))
    index = b"".join(path.read_bytes() for path in sorted((folder / "index").iterdir()))
    assert not any(data[end:])
    assert not any(index[first_index * 32 :])


def test_a_flush_that_began_before_a_truncation_makes_nothing_durable(
    open_store: OpenStore,
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    target = store.flush_target()
    store.flush(target)
    store.truncate(11)
    store.append_bodies(BODIES[11:], term=2)
    store.flushed(target)
    assert store.durable_index < 11

    flush(store)

    assert store.durable_index == 39


def test_a_truncation_lowers_the_checkpoint(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(5)
    store.truncate(11)
    # Read without closing the store, as after a crash.
    text = (store._folder / "checkpoint").read_text()

    assert "endIndex=10\n" in text
    assert "committedIndex=5\n" in text


def test_a_committed_entry_is_never_truncated(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(5)

    with pytest.raises(StoreError, match="entry 5 cannot be removed"):
        store.truncate(5)
    assert bodies_of(store) == BODIES


def test_a_truncation_after_the_end_does_nothing(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.truncate(40)

    assert store.end_index == 39


def test_a_truncation_is_durable_when_it_returns(
    open_store: OpenStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an old entry could follow a new one after a power cut."""
    store = open_store()
    store.append_bodies(BODIES, term=1)
    synced: list[str] = []

    def recording(sync: Callable[[int], None]) -> Callable[[int], None]:
        def record(fd: int) -> None:
            synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), folder))
            sync(fd)

        return record

    monkeypatch.setattr(os, "fsync", recording(os.fsync))
    monkeypatch.setattr(os, "fdatasync", recording(os.fdatasync))
    store.truncate(11)

    data, index = store.position(10).pos // 4096 * 4096, 320
    assert synced == [
        "data", f"data/{disk.file_name(data)}", "index", f"index/{disk.file_name(index)}"
    ]  # fmt: skip
