"""The file of producers is saved rarely enough to be cheap, and often enough for a fast start."""

from collections.abc import Callable

import pytest

from dledger_formats.log import disk
from dledger_formats.log.channels import channel_of
from dledger_node.store.derived.log_producers import EMPTY_SHARE, SAVE_ENTRIES
from dledger_node.store.log.log_store import LogStore

OpenStore = Callable[..., LogStore]


@pytest.mark.parametrize(
    ("producers", "due"), [(0, SAVE_ENTRIES // EMPTY_SHARE), (1, SAVE_ENTRIES)]
)
def test_the_file_is_due_once_the_log_has_grown_enough(
    open_store: OpenStore, producers: int, due: int
) -> None:
    store = open_store(segment=1 << 24, index_segment=1 << 22)
    for number in range(1, producers + 1):
        store.append_bodies([b""], 1, [channel_of(number, 0)], disk.NOOP)
    store.append_bodies([b""] * (due - 1 - producers), term=1)
    store.producers.table.mark_stable(store.end_index)
    assert store.producers.image_due() is None
    store.append_bodies([b""], term=1)
    store.producers.table.mark_stable(store.end_index)

    image = store.producers.image_due()

    assert image is not None
    store.producers.save(image)
    assert store.producers.image_due() is None
