"""What one durable append costs the bare machine: the floor under a group's latency.

Three processes that write a KiB each and sync it, at the same time and on the same disk, as the
members of a group on one machine do; and a KiB that travels over loopback and back.
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
    """Medians: a pwrite and fdatasync while others do the same, and a round trip."""
    with tempfile.TemporaryDirectory(dir=folder) as own, multiprocessing.Pool(WRITERS) as pool:
        paths = [Path(own, str(writer)) for writer in range(WRITERS)]
        synced_s = pool.starmap(_synced_s, [(path, seconds) for path in paths], chunksize=1)
        round_trips_s = _round_trips_s(pool)
    syncs_s = [each for writer in synced_s for each in writer]
    return statistics.median(syncs_s) * 1000, statistics.median(round_trips_s) * 1000


def _synced_s(path: Path, seconds: float) -> list[float]:
    """How long each of many writes took; the file has its blocks already, as segments have."""
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
    """Take a whole block; False at the end."""
    missing = len(BLOCK)
    while missing and (part := connection.recv(missing)):
        missing -= len(part)
    return not missing
