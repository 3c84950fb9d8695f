import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_node.errors import StoreError, StoreFullError
from dledger_node.raft.ready import HardState
from dledger_node.store.small_files import ballast
from dledger_node.store.small_files.hard_state import load_hard_state, save_hard_state
from dledger_store_files.root import AS_ROOT


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], check=False
    )
    if done.returncode:
        pytest.skip("tmpfs cannot be mounted")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def fill_up(volume: Path) -> None:
    with contextlib.suppress(OSError), (volume / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@AS_ROOT
def test_term_and_vote_are_saved_on_a_volume_without_a_free_block(small_volume: Path) -> None:
    save_hard_state(small_volume, HardState(term=1, vote_for="n0"))
    assert ballast.create(small_volume)
    fill_up(small_volume)

    save_hard_state(small_volume, HardState(term=2, vote_for="n1"))

    assert load_hard_state(small_volume) == HardState(term=2, vote_for="n1")


@AS_ROOT
def test_without_ballast_a_full_volume_keeps_the_old_term_and_vote(small_volume: Path) -> None:
    """The control of the test above."""
    save_hard_state(small_volume, HardState(term=1, vote_for="n0"))
    fill_up(small_volume)

    with pytest.raises(StoreFullError, match="cannot save term 2"):
        save_hard_state(small_volume, HardState(term=2, vote_for="n1"))

    assert load_hard_state(small_volume) == HardState(term=1, vote_for="n0")


@AS_ROOT
def test_the_ballast_is_created_again_once_there_is_room(small_volume: Path) -> None:
    ballast.create(small_volume)
    fill_up(small_volume)
    assert ballast.release(small_volume)
    assert not ballast.release(small_volume)
    assert ballast.create(small_volume)
    ballast.release(small_volume)
    fill_up(small_volume)

    assert not ballast.create(small_volume)
    (small_volume / "filler").unlink()
    assert ballast.create(small_volume)


def test_existing_ballast_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each member would sync its disk once a second."""
    assert ballast.create(tmp_path)
    real, synced = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), real(fd)))

    assert ballast.restore(tmp_path)
    assert not synced
    assert ballast.release(tmp_path)
    synced.clear()
    assert ballast.restore(tmp_path)
    assert synced
    (tmp_path / ballast.FILE_NAME).write_bytes(bytes(10))  # as a full volume may leave it
    synced.clear()
    assert ballast.restore(tmp_path)
    assert synced


@pytest.mark.parametrize("bad_files", [1, 2])
def test_ballast_on_a_bad_block_moves_to_a_new_file_unless_the_whole_disk_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad_files: int
) -> None:
    """The kernel must read a page before it can write a part of it."""
    assert ballast.create(tmp_path)
    real, tried = os.pwrite, list[int]()

    def pwrite(fd: int, data: bytes, at: int) -> int:
        tried.append(fd)
        if len(tried) <= bad_files:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)

    if bad_files == 1:
        assert ballast.create(tmp_path)
        assert (tmp_path / ballast.FILE_NAME).stat().st_size == ballast.SIZE_BYTES
    else:
        with pytest.raises(StoreError, match="Input/output error"):
            ballast.create(tmp_path)


def test_the_ballast_is_spent_once_and_only_where_there_is_no_room(tmp_path: Path) -> None:
    def full() -> None:
        raise StoreFullError("no room")

    ballast.create(tmp_path)
    assert ballast.spend(tmp_path, lambda: 7) == 7
    assert ballast.exists(tmp_path)

    with pytest.raises(StoreFullError):
        ballast.spend(tmp_path, full)

    assert not ballast.exists(tmp_path)
