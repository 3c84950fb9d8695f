"""A flood of hostile clients: `python -m dledger_wire.flood HOST PORT SECONDS` prints its totals.

Slow clients begin a frame and send a byte of it now and then. Greedy clients send as much as they
can of frames that they never end. Liars announce frames that are not allowed, and reconnect.
"""

import asyncio
import contextlib
import os
import sys

SLOW, GREEDY, LIARS = 200, 200, 4
SLOW_INTERVAL_S = 0.2
GREEDY_INTERVAL_S = 0.2
GREEDY_FRAME_BYTES = 5 << 20
CHUNK = bytes(64 * 1024)
LIES = (
    b"\x7f\xff\xff\xff" + bytes(60),
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff" * 64,
    b"\x00\x00\x00\x0a\x00\x00\x00\x02{]" + bytes(4),
    b"\x16\x03\x01\x02\x00" + bytes(60),
)


class Crowd:
    """Counts its connections and bytes."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.opened = self.bytes = 0

    async def connect(self) -> asyncio.StreamWriter:
        """Open one more connection."""
        _, writer = await asyncio.open_connection(self.host, self.port)
        self.opened += 1
        return writer

    async def slow(self) -> None:
        """Never end a frame, and never stop."""
        writer = await self.connect()
        writer.write((1000).to_bytes(4, "big") + (100).to_bytes(4, "big"))
        while True:
            await asyncio.sleep(SLOW_INTERVAL_S)
            writer.write(b"x")
            await writer.drain()

    async def greedy(self) -> None:
        """Send a large frame without its end."""
        writer = await self.connect()
        writer.write((GREEDY_FRAME_BYTES).to_bytes(4, "big") + (100).to_bytes(4, "big"))
        for _ in range(GREEDY_FRAME_BYTES // len(CHUNK) - 1):
            writer.write(CHUNK)
            await writer.drain()
            self.bytes += len(CHUNK)
            await asyncio.sleep(GREEDY_INTERVAL_S)
        await asyncio.Event().wait()

    async def lie(self) -> None:
        """Announce a frame that is not allowed, or send noise."""
        for lie in LIES:
            writer = await self.connect()
            writer.write(lie + os.urandom(1000))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.close()
            await asyncio.sleep(0.005)

    async def for_ever(self, kind: str) -> None:
        """Run one client, again whenever it is cut."""
        while True:
            with contextlib.suppress(OSError):
                await getattr(self, kind)()
            await asyncio.sleep(0.05)


async def main(host: str, port: int, seconds: float) -> None:
    """Run the crowd."""
    os.nice(10)  # it simulates other machines, and must not use up this machine's processor
    crowd = Crowd(host, port)
    kinds = ["slow"] * SLOW + ["greedy"] * GREEDY + ["lie"] * LIARS
    tasks = [asyncio.create_task(crowd.for_ever(kind)) for kind in kinds]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(f"{crowd.opened} connections, {crowd.bytes >> 20} MiB of unfinished frames")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
