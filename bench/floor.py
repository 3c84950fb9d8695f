"""The cost of one durable append on the bare machine: the floor under a group's latency.

Three processes each write and sync 1 KiB at the same time on the same disk, as the members of a
group on one machine do. In addition, 1 KiB makes a round trip over loopback.
"""

import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Final

BLOCK: Final = bytes(1024)
WRITERS: Final = 3
ROUND_TRIPS: Final = 2000
FILE_BYTES: Final = 8 << 20


def floor_ms(seconds: float, folder: str | None) -> tuple[float, float]:
    """Return two medians in ms: pwrite and fdatasync by concurrent writers, and a round trip."""
    with tempfile.TemporaryDirectory(dir=folder) as own, multiprocessing.Pool(WRITERS) as pool:
        paths = [Path(own, str(writer)) for writer in range(WRITERS)]
        synced_s = pool.starmap(_synced_s, [(path, seconds) for path in paths], chunksize=1)
        round_trips_s = _round_trips_s(pool)
    syncs_s = [each for writer in synced_s for each in writer]
    return statistics.median(syncs_s) * 1000, statistics.median(round_trips_s) * 1000


def _synced_s(path: Path, seconds: float) -> list[float]:
    """Return the duration of each write; the file is preallocated, as segments are."""
    path.write_bytes(bytes(FILE_BYTES))
    took_s: list[float] = []
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        end_s = time.perf_counter() + seconds
        while (began_s := time.perf_counter()) < end_s:
            os.pwrite(file.fileno(), BLOCK, len(took_s) * len(BLOCK) % FILE_BYTES)
            os.fdatasync(file.fileno())
            took_s.append(time.perf_counter() - began_s)
    return took_s


def _round_trips_s(pool: Pool) -> list[float]:
    took_s = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        echo = pool.apply_async(_echo, (listener.getsockname()[1],))
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(ROUND_TRIPS):
                began_s = time.perf_counter()
                connection.sendall(BLOCK)
                _receive(connection)
                took_s.append(time.perf_counter() - began_s)
        echo.get()
    return took_s


def _echo(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while _receive(connection):
            connection.sendall(BLOCK)


def _receive(connection: socket.socket) -> bool:
    """Receive a whole block; return False at the end of the stream."""
    missing = len(BLOCK)
    while missing and (part := connection.recv(missing)):
        missing -= len(part)
    return not missing
