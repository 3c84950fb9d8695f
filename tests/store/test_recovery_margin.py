"""Recovery verifies only a margin of the durable entries; reads verify the others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.log_store import LogStore
from dledger_store_files.contents import bodies_of, flush
from dledger_store_files.damage import flip

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]
SMALL_MARGIN = 2000
"""With this margin, opening a log of a few segments does not read all of it."""


@pytest.fixture
def stopped(open_store: OpenStore, crashed: Crashed) -> Path:
    """The folder of a log of BODIES that was closed in order."""
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.close()
    return crashed(store)


def test_only_a_margin_of_the_durable_entries_is_verified_at_a_start(
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
        with pytest.raises(
            StoreDamagedError, match=r"entry 3 is damaged .*bad_body_crc"
        ) as refused:
            ask(3)
        assert (refused.value.damage, refused.value.index) == (Damage.BAD_ENTRY, 3)


def test_a_lost_index_file_before_the_margin_is_rebuilt(
    open_store: OpenStore, stopped: Path
) -> None:
    min((stopped / "index").iterdir()).unlink()

    assert bodies_of(open_store(stopped, margin_bytes=SMALL_MARGIN)) == BODIES


def test_verify_all_reads_every_entry(stopped: Path) -> None:
    options = {"segment_size_bytes": 4096, "index_segment_size_bytes": 320}
    options["margin_bytes"] = SMALL_MARGIN
    whole = LogStore.open(stopped, **options, verify_all=True)
    damaged = whole.position(3)
    whole.close()
    flip(stopped / "data", damaged.pos + 50)

    assert whole.recovery.verified_entries == 40
    with pytest.raises(StoreDamagedError, match="entry 3 is missing or damaged"):
        LogStore.open(stopped, **options, verify_all=True)


def test_an_unverified_range_over_several_terms_can_be_read(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    for term in range(8):
        store.append_bodies(BODIES[term * 5 : term * 5 + 5], term)
    store.close()

    again = open_store(crashed(store), margin_bytes=SMALL_MARGIN)

    assert again.recovery.verified_entries < 20
    assert again.read_range(0, 30, 1 << 20)[0] == again._files.runs(0, 30)
