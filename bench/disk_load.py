"""Other processes that keep the disk busy: each writes and flushes, again and again."""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

WRITE_BYTES: Final = 200_000
FILE_BYTES_MAX: Final = 50 << 20
PAUSE_S: Final = 0.01


@contextlib.contextmanager
def disk_load(folder: Path, writers: int) -> Iterator[None]:
    """Run this many writers in a folder until the block ends."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_write, args=(folder / f"load-{number}",), daemon=True)
        for number in range(writers)
    ]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _write(path: Path) -> None:
    parent = os.getppid()
    with path.open("wb", buffering=0) as file:
        while os.getppid() == parent:
            file.write(bytes(WRITE_BYTES))
            os.fsync(file.fileno())
            if file.tell() > FILE_BYTES_MAX:
                file.seek(0)
            time.sleep(PAUSE_S)
