"""Real volumes that fill up."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import StoreFullError
from dledger_node.healing.set_aside import list_set_aside, set_aside_log, survey
from dledger_node.raft.ready import HardState
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files import ballast, lock
from dledger_node.store.small_files.hard_state import load_hard_state, save_hard_state
from dledger_store_files.damage import flip
from dledger_store_files.root import AS_ROOT
from dledger_store_files.upkeep import commit, remove_front

OpenStore = Callable[..., LogStore]


def mount(*arguments: str) -> None:
    """Mount, or skip the test if that is not permitted."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mount {' '.join(arguments)}: {done.stderr}")


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    at = tmp_path / "volume"
    at.mkdir()
    mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", str(at))
    yield at
    subprocess.run(["umount", str(at)], check=True)


@pytest.fixture
def volume_of_two_files(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for its own folder and one more."""
    at = tmp_path / "volume"
    at.mkdir()
    mount("-t", "tmpfs", "-o", "nr_inodes=2", "tmpfs", str(at))
    yield at
    subprocess.run(["umount", str(at)], check=True)


def fill(store: LogStore, batch: list[bytes]) -> int:
    """Append a batch until there is no room; return the number of bodies written."""
    written = 0
    with contextlib.suppress(StoreFullError):
        while True:
            store.append_bodies(batch, term=1)
            written += len(batch)
    return written


@AS_ROOT
def test_a_full_volume_refuses_a_batch_before_anything_is_written(
    small_volume: Path, open_store: OpenStore
) -> None:
    store = open_store(small_volume / "store")
    written = fill(store, [bytes(1900)] * 5)

    assert written > 50
    assert store.end_index == written - 1
    with pytest.raises(StoreFullError, match=r"no room for a segment of \d+ bytes"):
        store.append_bodies([bytes(1900)] * 5, term=1)
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)
    store.close()
    again = open_store(small_volume / "store")
    assert again.end_index == written - 1
    assert again.recovery.cut_bytes == 0


@AS_ROOT
def test_a_volume_without_room_for_the_folders_of_a_store_is_full(
    volume_of_two_files: Path, open_store: OpenStore
) -> None:
    with pytest.raises(StoreFullError, match=r"cannot create the folders of .*store"):
        open_store(volume_of_two_files / "store")


@AS_ROOT
def test_appends_succeed_again_once_the_volume_has_room(
    small_volume: Path, open_store: OpenStore
) -> None:
    ballast = small_volume / "ballast"
    ballast.write_bytes(bytes(200 << 10))
    store = open_store(small_volume / "store")
    fill(store, [bytes(1900)])
    end_index = store.end_index
    ballast.unlink()

    assert store.append_bodies([bytes(1900)], term=1) == (end_index + 1, end_index + 1)


@AS_ROOT
def test_every_reserved_byte_can_be_written_on_a_full_volume(
    small_volume: Path, open_store: OpenStore
) -> None:
    """With a memory-mapped file with holes, this process would be killed."""
    store = open_store(small_volume / "store")
    store.reserve([1900] * 10)
    with contextlib.suppress(OSError), (small_volume / "ballast").open("wb") as ballast:
        while True:
            ballast.write(bytes(4096))
            ballast.flush()

    store.append_bodies([bytes([7]) * 1900] * 10, term=1)

    assert store.entry(9)[1] == bytes([7]) * 1900


def leave_no_room(volume: Path) -> None:
    with contextlib.suppress(OSError), (volume / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@AS_ROOT
def test_the_front_is_removed_on_a_volume_without_a_free_block(
    small_volume: Path, open_store: OpenStore
) -> None:
    """Retention must free room just when there is none."""
    store = open_store(small_volume / "store")
    store.append_bodies([bytes(500)] * 40, term=1)
    commit(store, 30)
    leave_no_room(small_volume)

    first_index = remove_front(store, 2)
    store.close()

    assert open_store(small_volume / "store").begin_index == first_index > 0


@AS_ROOT
def test_the_tail_is_cut_on_a_volume_without_a_free_block(
    small_volume: Path, open_store: OpenStore
) -> None:
    """A member that could not cut its log could not follow a new leader."""
    store = open_store(small_volume / "store")
    store.append_bodies([bytes(500)] * 40, term=1)
    commit(store, 30)
    leave_no_room(small_volume)

    store.truncate(35)
    store.close()

    assert open_store(small_volume / "store").end_index == 34


@AS_ROOT
def test_a_store_opens_on_a_volume_without_a_free_block_for_its_lock_file(
    small_volume: Path, open_store: OpenStore
) -> None:
    folder = small_volume / "store"
    store = open_store(folder)
    store.append_bodies([bytes(500)] * 40, term=1)
    store.close()
    (folder / lock.FILE_NAME).write_bytes(b"")  # as after a start without room
    leave_no_room(small_volume)

    assert open_store(folder).end_index == 39


@AS_ROOT
def test_a_volume_without_room_to_create_the_lock_file_is_full(
    small_volume: Path, open_store: OpenStore
) -> None:
    folder = small_volume / "store"
    open_store(folder).close()
    (folder / lock.FILE_NAME).unlink()
    volume = os.statvfs(small_volume)
    used = volume.f_files - volume.f_ffree
    mount("-o", f"remount,nr_inodes={used}", str(small_volume))

    with pytest.raises(StoreFullError, match=f"cannot lock {folder}: .*No space left"):
        open_store(folder)


@AS_ROOT
def test_damaged_files_are_set_aside_on_a_volume_without_a_free_block(
    small_volume: Path, open_store: OpenStore
) -> None:
    folder = small_volume / "store"
    store = open_store(folder)
    store.append_bodies([bytes(500)] * 40, term=1)
    commit(store, 30)
    store.close()
    save_hard_state(folder, HardState(term=1, vote_for=None))
    flip(folder / disk.DATA_FOLDER, 4096 + 100)
    leave_no_room(small_volume)

    found = survey(folder, segment_size_bytes=4096, index_segment_size_bytes=320)
    set_aside_log(folder, found, verdict="BadEntry", moment="now")

    assert found.end_index == 6
    assert load_hard_state(folder).joining
    assert [one.first_index for one in list_set_aside(folder)] == [7]


@AS_ROOT
def test_a_periodic_checkpoint_leaves_the_ballast_for_what_cannot_wait(
    small_volume: Path, open_store: OpenStore
) -> None:
    store = open_store(small_volume / "store")
    store.append_bodies([bytes(500)] * 40, term=1)
    leave_no_room(small_volume)

    with pytest.raises(StoreFullError):
        commit(store, 30)

    assert ballast.exists(small_volume / "store")


def test_a_file_size_limit_counts_as_a_full_volume(tmp_path: Path) -> None:
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from dledger_node.errors import StoreFullError\n"
        "from dledger_node.store.log.log_store import LogStore\n"
        "store = LogStore.open(\n"
        "    Path(sys.argv[1]), segment_size_bytes=8192, index_segment_size_bytes=320\n"
        ")\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    store.append_bodies([b'x'], term=1)\n"
        "except StoreFullError as error:\n"
        "    print(store.end_index, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "store")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.startswith("-1 ")
    assert "no room for a segment of 8192 bytes" in done.stdout
    assert not list((tmp_path / "store").glob("*.spare"))
