import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import StoreDamagedError
from dledger_node.store.log.log_store import LogStore
from dledger_store_files.contents import bodies_of, entry_or_none, files_under, flush
from dledger_store_files.damage import flip, poke

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]


@pytest.mark.parametrize("entries_of_a_term", [5, 40])
@pytest.mark.parametrize("checkpointed", [True, False])
@pytest.mark.parametrize("loss", ["all", "first", "last", "zeros", "noise"])
def test_index_files_are_rebuilt_from_the_data(
    open_store: OpenStore,
    crashed: Crashed,
    loss: str,
    checkpointed: bool,
    entries_of_a_term: int,
) -> None:
    store = open_store()
    for start in range(0, 40, entries_of_a_term):
        store.append_bodies(BODIES[start : start + entries_of_a_term], term=start + 1)
    flush(store)
    store.save_checkpoint(39 if checkpointed else -1)
    if not checkpointed:
        (store._folder / "checkpoint").unlink()
    whole = files_under(store._folder)
    runs = store.term_runs()
    at = crashed(store)
    paths = sorted((at / "index").iterdir())
    match loss:
        case "all":
            shutil.rmtree(at / "index")
        case "first":
            paths[0].unlink()
        case "last":
            paths[-1].unlink()
        case "zeros":
            paths[1].write_bytes(bytes(320))
        case "noise":
            for path in paths:
                path.write_bytes(random.Random(1).randbytes(320))

    again = open_store(at)

    assert bodies_of(again) == BODIES
    assert again.term_runs() == runs
    assert again.recovery.rebuilt_units > 0
    for name, data in files_under(at).items():
        assert name == "checkpoint" or data == whole[name]


@pytest.mark.parametrize("number", range(3, 36, 5))
def test_terms_are_known_although_unverified_index_units_are_lost(
    open_store: OpenStore, crashed: Crashed, number: int
) -> None:
    """Recovery may find where to begin, and then find the index of earlier entries damaged."""
    store = open_store()
    for term in range(1, 9):
        store.append_bodies(BODIES[term * 5 - 5 : term * 5], term)
    flush(store)
    store.save_checkpoint(39)
    runs = store.term_runs()
    at = crashed(store)
    poke(at / "index", number * 32, bytes(2 * 32), segment_bytes=320)

    assert open_store(at, margin_bytes=2000).term_runs() == runs


@pytest.mark.parametrize("index", range(0, 40, 3))
@pytest.mark.parametrize("byte", [0, 8, 14, 22, 31])
@pytest.mark.parametrize("margin_bytes", [2000, 1 << 20])
def test_a_wrong_index_unit_gives_the_right_entry_or_none(
    open_store: OpenStore, crashed: Crashed, index: int, byte: int, margin_bytes: int
) -> None:
    """Opening rewrites the unit, unless it does not read the entry; then a read refuses the entry.

    It also refuses the next entry, whose chain CRC covers the header that cannot be found.
    """
    store = open_store()
    for term in range(1, 9):
        store.append_bodies(BODIES[term * 5 - 5 : term * 5], term)
    runs = store.term_runs()
    store.close()
    at = crashed(store)
    pos = index * 32 + byte
    flip(at / "index", pos, bits=1, segment_bytes=320)

    again = open_store(at, margin_bytes=margin_bytes)

    assert again.term_runs() == runs
    found = [entry_or_none(again, number) for number in range(40)]
    refused = [number for number, body in enumerate(found) if body is None]
    if again.recovery.verified_entries == 40:
        assert (again.recovery.rebuilt_units, refused) == (1, [])
    else:
        assert margin_bytes == 2000
        assert (again.recovery.rebuilt_units, refused) == (0, [index, index + 1])
    assert all(body in (None, BODIES[number]) for number, body in enumerate(found))


@pytest.mark.parametrize("verified_when_served", [False, True])
@pytest.mark.parametrize("field", ["pos", "size"])
@pytest.mark.parametrize("value", [1 << 30, -(1 << 30), 48 + 20, 0, 4095])
def test_a_range_over_a_wrong_index_unit_is_read_correctly_or_refused_as_damage(
    open_store: OpenStore, field: str, value: int, verified_when_served: bool
) -> None:
    """The unit goes bad while the store is open, as a page does that is read again."""
    store = open_store()
    store.append_bodies(BODIES, term=1)
    first_index, last_index = 2, 37
    right = b"".join(store.read_range(first_index, last_index, 1 << 20)[0])
    store._verified_index = 40 if verified_when_served else 0
    for index in range(first_index, last_index + 1):
        unit = store.position(index)
        path = sorted((store._folder / "index").iterdir())[index * 32 // 320]
        whole = path.read_bytes()
        at = index * 32 % 320
        wrong = disk.INDEX_UNIT.pack(*unit._replace(**{field: value}))
        path.write_bytes(whole[:at] + wrong + whole[at + 32 :])
        store.damage = None

        found = runs_or_damage(store, first_index, last_index)

        assert store.damage is (found if isinstance(found, StoreDamagedError) else None)
        if isinstance(found, StoreDamagedError):
            assert first_index <= (found.index or 0) <= last_index
        else:
            assert found
            assert right.startswith(found)
        path.write_bytes(whole)


def runs_or_damage(store: LogStore, first_index: int, last_index: int) -> bytes | StoreDamagedError:
    try:
        return b"".join(store.read_range(first_index, last_index, 1 << 20)[0])
    except StoreDamagedError as error:
        return error
