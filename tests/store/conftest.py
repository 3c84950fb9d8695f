"""Fixtures of the store tests; segments are small, so that a few entries fill several."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dledger_node.errors import StoreError
from dledger_node.raft.ready import HardState
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import save_hard_state
from dledger_store_files.command import Command
from dledger_store_files.contents import COMMAND_BODIES, flush

SEGMENT_BYTES = 4096
INDEX_SEGMENT_BYTES = 320  # ten units


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of one member's store."""
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
    """Copy a store's folder in its current state, as if its process were killed."""

    def copy(store: LogStore) -> Path:
        at = memory_path / "crashed"
        shutil.rmtree(at, ignore_errors=True)
        shutil.copytree(store._folder, at)
        return at

    return copy


@pytest.fixture
def open_store(folder: Path) -> Iterator[Callable[..., LogStore]]:
    """Open a store, at `folder` or elsewhere; close those that the test leaves open."""
    opened: list[LogStore] = []

    def open_(
        at: Path = folder,
        *,
        segment: int = SEGMENT_BYTES,
        index_segment: int = INDEX_SEGMENT_BYTES,
        **options: Any,
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


@pytest.fixture
def store_command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def written(open_store: Callable[..., LogStore], folder: Path) -> Path:
    """The folder of a member that stopped in order."""
    store = open_store()
    store.append_bodies(COMMAND_BODIES[:30], term=1)
    store.append_bodies(COMMAND_BODIES[30:], term=3)
    flush(store)
    store.save_checkpoint(35)
    store.close()
    save_hard_state(folder, HardState(term=4, vote_for="n2"))
    return folder
