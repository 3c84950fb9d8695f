"""How fast one member's store is, compared with the bare machine in the same run.

    make bench                          or, for some parts:
    python -m bench.store --only append flush zeros open memory --log-mib 1024

append   batches of 1 KiB bodies, against the minimum that such a log needs: CRC-32 of each body and
         a copy into a mapped file that touches each page once. The two alternate, so that a busy
         machine slows both, and only processor time counts. The median bare batch may find its
         pages already mapped; the mean includes the cost of mapping them.
flush    one durable append, against a bare pwrite and fdatasync of the same size, alternating.
zeros    a bare pwrite and fdatasync to blocks that are only allocated, against blocks that hold
         zeros, alternating. The difference is why the store writes zeros ahead of the log.
open     opening a log after a clean close, and one left by a crash, both with a warm page cache.
memory   anonymous memory of this process after writing a log of `--memory-mib`.

The project's targets: append reaches at least 0.5 of raw from batches of 64 on; flush takes at most
1.3 times the bare median; a log of 1 GiB opens within 2 s; memory stays within 64 MiB.
"""

import argparse
import mmap
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dledger_formats.log.checksum import crc32
from dledger_node.store.log.log_store import LogStore

BODY = os.urandom(1024)
STORED_BYTES = len(BODY) + 48
PARTS = ("append", "flush", "zeros", "open", "memory")


def main() -> None:
    """Measure the selected parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", help="where the logs are kept (default: a temporary folder)")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--log-mib", type=int, default=1024, help="size of the log that is opened")
    parser.add_argument(
        "--memory-mib", type=int, default=3072, help="size of the log that is written"
    )
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}; bodies of {len(BODY)} bytes")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        if "append" in arguments.only:
            for batch in (1, 8, 64, 512):
                append(folder, batch, arguments.rounds)
        if "flush" in arguments.only:
            flush(folder, arguments.rounds)
        if "zeros" in arguments.only:
            for size in (4 << 10, 64 << 10, 256 << 10):
                zeros(folder, size, min(arguments.rounds, (64 << 20) // size))
        if "open" in arguments.only:
            open_(folder, arguments.log_mib << 20)
        if "memory" in arguments.only:
            memory(folder, arguments.memory_mib << 20)


def new_store(folder: Path, segment_bytes: int = 1 << 30) -> LogStore:
    """Return an empty store."""
    shutil.rmtree(folder / "store", ignore_errors=True)
    return opened(folder / "store", segment_bytes)


def opened(at: Path, segment_bytes: int = 1 << 30) -> LogStore:
    """Open the store in a folder."""
    return LogStore.open(at, segment_size_bytes=segment_bytes, index_segment_size_bytes=160 << 20)


def make_durable(store: LogStore) -> None:
    """Flush everything that was written."""
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)


def make_ready(store: LogStore) -> None:
    """Prepare segments and zeros ahead of the log, which other threads of a member do."""
    if store.room_is_short:
        store.preallocate()
    while store.zero_ahead.is_due:
        store.zero_ahead.run()


def timed(work: Callable[[], object]) -> float:
    """Return the duration in seconds."""
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


def processor_time(work: Callable[[], object]) -> float:
    """Return the processor time in seconds, including the kernel's part."""
    begin_s = time.thread_time()
    work()
    return time.thread_time() - begin_s


def append(folder: Path, batch: int, rounds: int) -> None:
    """Append batches to the store and to a mapped file, alternating."""
    store = new_store(folder)
    bodies = [BODY] * batch
    raw_path = folder / "raw"
    rounds = min(rounds, (900 << 20) // (batch * STORED_BYTES))
    raw_bytes = rounds * batch * STORED_BYTES
    with raw_path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, raw_bytes)
        mapped = memoryview(mmap.mmap(file.fileno(), raw_bytes))
    at = 0

    def raw() -> None:
        nonlocal at
        for body in bodies:
            crc32(body)
            mapped[at : at + len(body)] = body
            at += STORED_BYTES

    ours, raws = [], []
    for number in range(rounds):
        raws.append(processor_time(raw))
        ours.append(processor_time(lambda: store.append_bodies(bodies, 1)))
        if number * batch % 4096 < batch:  # as group commit does; else the kernel throttles us
            make_durable(store)
            make_ready(store)
    store.close()
    raw_path.unlink()
    for average in (statistics.median, statistics.mean):
        own_s, raw_s = average(ours), average(raws)
        print(
            f"append  batch {batch:4}, {average.__name__:6}: {own_s / batch * 1e9:7.0f} ns an "
            f"entry, raw {raw_s / batch * 1e9:6.0f} ns: {raw_s / own_s:.2f} of raw"
        )


def flush(folder: Path, rounds: int) -> None:
    """Alternate one durable append and one bare durable write."""
    store = new_store(folder)
    store.append_bodies([BODY], 1)
    make_durable(store)
    fd = os.open(folder / "raw", os.O_RDWR | os.O_CREAT, 0o600)
    os.posix_fallocate(fd, 0, rounds * STORED_BYTES)
    os.fsync(fd)
    data = os.urandom(STORED_BYTES)

    def raw(number: int) -> None:
        os.pwrite(fd, data, number * STORED_BYTES)
        os.fdatasync(fd)

    def own() -> None:
        store.append_bodies([BODY], 1)
        make_durable(store)

    ours, raws = [], []
    for number in range(rounds):
        raws.append(timed(lambda number=number: raw(number)))  # type: ignore[misc]
        ours.append(timed(own))
        make_ready(store)
    os.close(fd)
    store.close()
    (folder / "raw").unlink()
    own_s, raw_s = statistics.median(ours), statistics.median(raws)
    print(
        f"flush   one append + fdatasync: p50 {own_s * 1e6:.0f} us, bare pwrite + fdatasync "
        f"{raw_s * 1e6:.0f} us: {own_s / raw_s:.2f} times"
    )


def zeros(folder: Path, size: int, rounds: int) -> None:
    """Write durably and sequentially to allocated blocks and to zeros, alternating."""
    data = os.urandom(size)
    files: list[int] = []
    seconds: tuple[list[float], list[float]] = ([], [])
    for name in ("allocated", "zeros"):
        fd = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(fd, 0, rounds * size)
        files.append(fd)
    for at in range(0, rounds * size, 64 << 10):
        os.pwrite(files[1], bytes(min(64 << 10, rounds * size - at)), at)
    for fd in files:
        os.fsync(fd)

    def durable(fd: int, at: int) -> None:
        os.pwrite(fd, data, at)
        os.fdatasync(fd)

    for number in range(rounds):
        for kind in (0, 1) if number % 2 else (1, 0):
            fd, at = files[kind], number * size
            seconds[kind].append(timed(lambda fd=fd, at=at: durable(fd, at)))  # type: ignore[misc]
    for fd, name in zip(files, ("allocated", "zeros"), strict=True):
        os.close(fd)
        (folder / name).unlink()
    p50s = [statistics.median(each) * 1e6 for each in seconds]
    p99s = [statistics.quantiles(each, n=100)[-1] * 1e6 for each in seconds]
    print(
        f"zeros   {size >> 10:3} KiB + fdatasync: allocated p50 {p50s[0]:.0f}, p99 {p99s[0]:.0f} "
        f"us; zeros {p50s[1]:.0f}, {p99s[1]:.0f} us: {p50s[0] / p50s[1]:.2f} times the cost"
    )


def fill(store: LogStore, log_bytes: int) -> None:
    """Write a log of this many bytes, as a leader does."""
    for _ in range(log_bytes // (256 * STORED_BYTES)):
        store.append_bodies([BODY] * 256, 1)
        if store.end_index % 8192 < 256:
            make_durable(store)
            settle(store)
            make_ready(store)
    make_durable(store)
    settle(store)


def settle(store: LogStore) -> None:
    """Save what a member saves once a second; every durable entry counts as committed."""
    store.save_checkpoint(store.durable_index)
    store.producers.table.mark_stable(store.durable_index)
    image = store.producers.image_due()
    if image is not None:
        store.producers.save(image)


def open_(folder: Path, log_bytes: int) -> None:
    """Open a log after a clean close, after a crash, and without a checkpoint."""
    store = new_store(folder)
    fill(store, log_bytes)
    at = folder / "store"
    store.close()
    say_opened("closed cleanly", at)
    store = opened(at)
    store.append_bodies([BODY] * 10_000, 1)
    # A crash does not close the store, so the checkpoint does not cover the last entries.
    store._lock.close()
    say_opened("left by a crash", at)
    (at / "checkpoint").unlink()
    say_opened("without a checkpoint, so all of it is read", at)


def say_opened(how: str, at: Path) -> None:
    """Open a store once and print the duration."""
    begin_s = time.perf_counter()
    store = opened(at)
    seconds = time.perf_counter() - begin_s
    entries, verified = store.end_index + 1, store.recovery.verified_entries
    store.close()
    print(f"open    {entries} entries, {how}: {seconds:.2f} s, {verified} entries verified")


def memory(folder: Path, log_bytes: int) -> None:
    """Write a log over several segments and measure this process's memory."""
    before = anonymous_bytes()
    store = new_store(folder, 1 << 30)
    most = 0
    written = 0
    while written < log_bytes:
        fill(store, 256 << 20)
        written += 256 << 20
        store.read_range(0, min(store.end_index, 4000), 1 << 20)
        most = max(most, anonymous_bytes())
    store.close()
    print(
        f"memory  over a log of {written >> 20} MiB: {most / 2**20:.0f} MiB anonymous, "
        f"{(most - before) / 2**20:.0f} MiB more than before it"
    )


def anonymous_bytes() -> int:
    """Return the resident bytes of this process that no file backs."""
    status = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
