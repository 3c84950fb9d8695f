"""Remains of a truncation by Java, which moves the end of the log and does not zero the rest."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import StoreDamagedError
from dledger_node.store.log.log_store import LogStore
from dledger_store_files.contents import all_bytes, bodies_of
from dledger_store_files.damage import poke

OpenStore = Callable[..., LogStore]
KEPT = [b"kept" * 50] * 5
TAIL = [b"tail" * 100] * 5


def store_after_truncation(open_store: OpenStore, folder: Path, *, new_term: int) -> Path:
    """Write a log whose tail of term 2 was replaced by one short entry, as Java does it.

    The bytes of the entry and of its index unit come from a store that never had the tail.
    """
    never = open_store(folder.with_name("never"))
    cut = open_store(folder)
    for store in (never, cut):
        store.append_bodies(KEPT, term=1)
    never.append_bodies([b"new"], term=new_term)
    cut.append_bodies(TAIL, term=2)
    unit = never.position(5)
    never.close()
    cut.close()
    for kind, pos, size in (("data", unit.pos, unit.size), ("index", 5 * 32, 32)):
        poke(folder / kind, pos, all_bytes(folder.with_name("never") / kind)[pos : pos + size])
    (folder / "checkpoint").unlink()
    shutil.rmtree(folder.with_name("never"))
    return folder


@pytest.fixture
def open_wide(open_store: OpenStore) -> OpenStore:
    """Open a store with index segments that hold the whole log, for `poke`."""

    def open_(at: Path) -> LogStore:
        return open_store(at, index_segment=4096)

    return open_


def test_the_remains_of_a_truncated_tail_are_not_damage(open_wide: OpenStore, folder: Path) -> None:
    at = store_after_truncation(open_wide, folder, new_term=3)
    assert all_bytes(at / "data").count(b"tail") > 300

    store = open_wide(at)

    assert bodies_of(store) == [*KEPT, b"new"]
    assert b"tail" not in all_bytes(at / "data")
    assert not any(all_bytes(at / "index")[6 * disk.INDEX_UNIT_SIZE :])


def test_sound_entries_of_the_same_term_after_damage_are_refused(
    open_wide: OpenStore, folder: Path
) -> None:
    at = store_after_truncation(open_wide, folder, new_term=2)

    with pytest.raises(StoreDamagedError, match="later entries are sound"):
        open_wide(at)


def test_a_java_checkpoint_older_than_a_truncation_is_refused_until_it_is_removed(
    open_wide: OpenStore, folder: Path
) -> None:
    """Java writes it every three seconds, so a crash may leave one with the old end."""
    at = store_after_truncation(open_wide, folder, new_term=3)
    (at / "checkpoint").write_text("endIndex=9\ncommittedIndex=4\n")
    with pytest.raises(StoreDamagedError, match="checkpoint"):
        open_wide(at)

    (at / "checkpoint").unlink()

    assert bodies_of(open_wide(at)) == [*KEPT, b"new"]
