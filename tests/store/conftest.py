"""What every store test shares: small segments, so that a few entries cross many borders."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dledger_node.errors import StoreError
from dledger_node.store.log.log_store import LogStore

SEGMENT_BYTES = 4096
INDEX_SEGMENT_BYTES = 320  # ten units


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where one member's store lives."""
    return tmp_path / "dledger-n0"


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder where fsync costs nothing, for tests that open hundreds of stores."""
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=shared_memory if shared_memory.is_dir() else tmp_path
    ) as name:
        yield Path(name)


@pytest.fixture
def crashed(memory_path: Path) -> Callable[[LogStore], Path]:
    """Copy a store's folder as it is now, as if its process were killed."""

    def copy(store: LogStore) -> Path:
        at = memory_path / "crashed"
        shutil.rmtree(at, ignore_errors=True)
        shutil.copytree(store._folder, at)
        return at

    return copy


@pytest.fixture
def open_store(folder: Path) -> Iterator[Callable[..., LogStore]]:
    """Open a store, at `folder` or elsewhere; what the test leaves open is closed."""
    opened: list[LogStore] = []

    def open_(
        at: Path = folder,
        *,
        segment: int = SEGMENT_BYTES,
        index_segment: int = INDEX_SEGMENT_BYTES,
        **options: int,
    ) -> LogStore:
        store = LogStore.open(
            at, segment_size_bytes=segment, index_segment_size_bytes=index_segment, **options
        )
        opened.append(store)
        return store

    yield open_
    for store in opened:
        with contextlib.suppress(ValueError, OSError, StoreError):  # closed by the test
            store.close()
