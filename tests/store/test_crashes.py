"""Processes killed at any moment, disks that fill up, machines that lose power: for real."""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dledger_node.errors import StoreFullError
from dledger_node.store.mmap_store import MmapStore

OpenStore = Callable[..., MmapStore]
SIZES = {"segment_size_bytes": 4096, "index_segment_size_bytes": 320}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems: needs root")

# After each flush the durable index and the term are printed, and before each truncation what it
# lowers them to.
WRITER = """
import random, sys
from pathlib import Path
from dledger_node.store.mmap_store import MmapStore

choices = random.Random(int(sys.argv[2]))
store = MmapStore.open(Path(sys.argv[1]), segment_size_bytes=4096, index_segment_size_bytes=320)
term = store.end_term + 1
store.append_noop(term)
while True:
    first = max(store.committed_index + 1, store.end_index - choices.randrange(10))
    if choices.random() < 0.05 and first <= store.end_index:
        print(min(first - 1, store.durable_index), term, flush=True)
        store.truncate(first)
        term += 1
    indexes = range(store.end_index + 1, store.end_index + choices.randrange(2, 9))
    store.append_bodies([b"%d" % index * choices.randrange(200) for index in indexes], term)
    if choices.random() < 0.3:
        target = store.flush_target()
        store.flush(target)
        store.flushed(target)
        print(store.durable_index, term, flush=True)
    if choices.random() < 0.05:
        store.save_checkpoint(store.durable_index - 12)
    if choices.random() < 0.1:
        store.preallocate()
"""


def test_a_writer_killed_at_any_moment_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    choices = random.Random(1)
    folder = tmp_path / "store"
    for seed in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(seed)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(choices.randrange(1, 40))]
            with contextlib.suppress(subprocess.TimeoutExpired):
                writer.wait(choices.random() * 0.01)
            writer.send_signal(signal.SIGKILL)
            lines += [line for line in writer.stdout if line.endswith(b"\n")]
        assert writer.returncode == -signal.SIGKILL
        durable_index, term = map(int, lines[-1].split())
        store = MmapStore.open(folder, **SIZES)
        assert store.end_index >= durable_index
        assert store.end_term >= term or store.end_index == durable_index
        for index in range(store.end_index + 1):
            header, body = store.entry(index)
            assert header.index == index
            assert body == b"%d" % index * (len(body) // len(str(index)))
        store.close()


def mount(*arguments: str) -> None:
    """Mount, or skip the test where root may not."""
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


def fill(store: MmapStore, batch: list[bytes]) -> int:
    """Append this batch until there is no more room; returns the number of bodies written."""
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
    with pytest.raises(StoreFullError, match="no room for a segment of 4096 bytes"):
        store.append_bodies([bytes(1900)] * 5, term=1)
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)
    store.close()
    again = open_store(small_volume / "store")
    assert again.end_index == written - 1
    assert again.recovery.cut_bytes == 0


@AS_ROOT
def test_a_log_goes_on_once_the_volume_has_room(small_volume: Path, open_store: OpenStore) -> None:
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
    """A mapped file with holes would kill this process here."""
    store = open_store(small_volume / "store")
    store.reserve([1900] * 10)
    with contextlib.suppress(OSError), (small_volume / "ballast").open("wb") as ballast:
        while True:
            ballast.write(bytes(4096))
            ballast.flush()

    store.append_bodies([bytes([7]) * 1900] * 10, term=1)

    assert store.entry(9)[1] == bytes([7]) * 1900


def test_a_limit_on_file_sizes_is_a_full_store(tmp_path: Path) -> None:
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from dledger_node.errors import StoreFullError\n"
        "from dledger_node.store.mmap_store import MmapStore\n"
        "store = MmapStore.open(\n"
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


EXT4_IOC_SHUTDOWN = 0x8004587D
NOTHING_FLUSHED, JOURNAL_FLUSHED = 2, 1


@pytest.fixture
def ext4_image(tmp_path: Path) -> Path:
    """An image with a file system that can be stopped as if the power failed."""
    if not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists():
        pytest.skip("needs mkfs.ext4 and loop devices")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(24 << 20)
    subprocess.run(["mkfs.ext4", "-qF", str(image)], check=True)
    return image


@contextlib.contextmanager
def mounted(image: Path) -> Iterator[Path]:
    at = image.with_name("mounted")
    at.mkdir(exist_ok=True)
    mount("-o", "loop", str(image), str(at))
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def cut_power(at: Path, how: int) -> None:
    """Stop the file system; what was not flushed is gone."""
    fd = os.open(at, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", how))
    finally:
        os.close(fd)


def plug_in_again(image: Path) -> Path:
    """Copy a disk, since another mount namespace may still hold the file system that was cut."""
    copied = image.with_name(f"{image.name}+")
    shutil.copyfile(image, copied)
    image.unlink()
    return copied


def close_after_power_cut(store: MmapStore) -> None:
    """Give back what the process holds; the disk takes nothing any more."""
    with contextlib.suppress(Exception):
        store.close()


@AS_ROOT
@pytest.mark.parametrize("how", [NOTHING_FLUSHED, JOURNAL_FLUSHED])
def test_a_power_cut_loses_nothing_that_was_flushed(ext4_image: Path, how: int) -> None:
    """Also the proof that fdatasync writes what was copied into a mapping."""
    choices = random.Random(how)
    durable_bodies: list[bytes] = []
    lost_unflushed = 0
    for term in range(8):
        with mounted(ext4_image) as at:
            store = MmapStore.open(at / "store", **SIZES)
            bodies = [store.entry(index)[1] for index in range(store.end_index + 1)]
            assert bodies[: len(durable_bodies)] == durable_bodies
            for _ in range(choices.randrange(1, 30)):
                batch = [choices.randbytes(choices.randrange(1500)) for _ in range(4)]
                store.append_bodies(batch, term)
                bodies += batch
                match choices.randrange(8):
                    case 0 | 1 | 2:
                        target = store.flush_target()
                        store.flush(target)
                        store.flushed(target)
                        durable_bodies = list(bodies)
                    case 3:
                        store.save_checkpoint(len(durable_bodies) - 10)
                    case 4:
                        store.preallocate()
            lost_unflushed += len(bodies) - len(durable_bodies)
            cut_power(at, how)
            close_after_power_cut(store)
        ext4_image = plug_in_again(ext4_image)

    assert len(durable_bodies) > 100
    assert lost_unflushed > 10


@AS_ROOT
def test_the_power_cut_of_this_test_loses_what_was_not_flushed(ext4_image: Path) -> None:
    """Without this the test above could not fail."""
    with mounted(ext4_image) as at:
        store = MmapStore.open(at / "store", **SIZES)
        store.append_bodies([b"flushed"], term=1)
        target = store.flush_target()
        store.flush(target)
        store.append_bodies([b"lost"], term=1)
        cut_power(at, NOTHING_FLUSHED)
        close_after_power_cut(store)
    with mounted(plug_in_again(ext4_image)) as at:
        store = MmapStore.open(at / "store", **SIZES)
        found = [store.entry(index)[1] for index in range(store.end_index + 1)]
        store.close()

    assert found == [b"flushed"]
