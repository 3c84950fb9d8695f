"""The cost of an append in the client, against a server that answers at once and stores nothing.

    make bench-client                     or, for other loads:
    python -m bench.client --appends 200000 --body-bytes 100 1024 --in-flight 1024

The server runs in a separate process. Client seconds are processor time of the client's process,
which a busy machine changes little; the elapsed rate depends on both processes.
"""

import argparse
import asyncio
import multiprocessing
import os
import platform
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection as Pipe
from typing import cast

import uvloop

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.protocol.append_batch import APPEND_BATCH, split
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.frames import FrameDecoder, encode_responses
from dledger_formats.protocol.requests import AppendEntryResponse, MetadataResponse

GROUP = "null"
MEMBER = "n0"
WARM_UP_APPENDS = 20_000


class NullServer(asyncio.Protocol):
    """Answers METADATA and appends like a leader, without followers and without a disk."""

    def __init__(self, address: str, *, takes_batches: bool) -> None:
        self._takes_batches = takes_batches
        self._metadata = MetadataResponse(
            group=GROUP,
            local_id=MEMBER,
            leader_id=MEMBER,
            term=1,
            peers={MEMBER: address},
            voters=(MEMBER,) if takes_batches else (),
        ).to_json()
        self._decoder = FrameDecoder()
        self._index = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer all received requests in one write."""
        answers: list[tuple[int, bytes]] = []
        for command in self._decoder.feed(data):
            if command.code == RequestCode.METADATA:
                answers.append((command.opaque, self._metadata))
                continue
            count = 1
            if command.code == APPEND_BATCH:
                count = len(split(command.body)[1]) if self._takes_batches else 0
            response = AppendEntryResponse(
                code=DLedgerResponseCode.SUCCESS if count else DLedgerResponseCode.UNSUPPORTED,
                group=GROUP,
                leader_id=MEMBER,
                term=1,
                index=self._index,
                pos=self._index * 1072,
            )
            self._index += count
            answers.append((command.opaque, response.to_json()))
        self._transport.write(encode_responses(answers))


def serve(pipe: Pipe, takes_batches: bool) -> None:
    """Listen on a free port until the process is terminated; send the address to the pipe."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        address = ""
        server = await loop.create_server(
            lambda: NullServer(address, takes_batches=takes_batches), "127.0.0.1", 0
        )
        host, port = server.sockets[0].getsockname()
        address = f"{host}:{port}"
        pipe.send(address)
        await server.serve_forever()

    uvloop.run(run())


async def measure(address: str, appends: int, body_bytes: int, in_flight: int) -> tuple[float, ...]:
    """Append; return the client's processor seconds and the elapsed seconds."""
    body = os.urandom(body_bytes)
    begin = (0.0, 0.0)

    def bodies() -> Iterator[bytes]:
        nonlocal begin
        for number in range(WARM_UP_APPENDS + appends):
            if number == WARM_UP_APPENDS:
                begin = (time.process_time(), time.perf_counter())
            yield body

    async with DLedgerClient([f"{MEMBER}={address}"], GROUP) as client:
        async for outcome in client.append_all(bodies(), in_flight=in_flight):
            if not isinstance(outcome, Acknowledged):
                raise SystemExit(f"an append was not acknowledged: {outcome}")
    return time.process_time() - begin[0], time.perf_counter() - begin[1]


def main() -> None:
    """Measure each load and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--appends", type=int, default=200_000)
    parser.add_argument("--body-bytes", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--in-flight", type=int, nargs="+", default=[64, 1024])
    parser.add_argument(
        "--one-by-one", action="store_true", help="use a server without APPEND_BATCH, like Java's"
    )
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs, not arguments.one_by_one), daemon=True)
    server.start()
    try:
        address = ours.recv()
        print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}")
        print("body bytes  in flight  appends/client second  us an append  appends/s elapsed")
        for body_bytes in arguments.body_bytes:
            for in_flight in arguments.in_flight:
                client_s, elapsed_s = uvloop.run(
                    measure(address, arguments.appends, body_bytes, in_flight)
                )
                print(
                    f"{body_bytes:10}  {in_flight:9}  {arguments.appends / client_s:21,.0f}  "
                    f"{client_s / arguments.appends * 1e6:12.2f}  "
                    f"{arguments.appends / elapsed_s:17,.0f}",
                    flush=True,
                )
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
