"""Clients of a broker that only cost it: `python -m dledger_broker_client.crowd ADDRESS SECONDS`.

Each of them holds pulls, reads none of the answers, and lets ever new clients join groups.
"""

import contextlib
import os
import socket
import sys
import time
from typing import Final

from dledger_broker_client.client import consumer, pull_ext
from dledger_formats.peers import split_address
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode
from dledger_formats.rocketmq.consumer_groups import Heartbeat

CONNECTIONS: Final = 20
INTERVAL_S: Final = 0.05
HELD: Final = {"sysFlag": "6", "suspendTimeoutMillis": "20000"}


def main(address: str, seconds: float) -> None:
    """Send requests over all connections until the time is over."""
    os.nice(10)  # it simulates other machines, and must not use up this machine's processor
    with contextlib.ExitStack() as stack:
        lines = [
            stack.enter_context(socket.create_connection(split_address(address), timeout=1))
            for _ in range(CONNECTIONS)
        ]
        number, end_s = 0, time.monotonic() + seconds
        while time.monotonic() < end_s:
            for line in lines:
                number += 1
                with contextlib.suppress(OSError):  # it is cut, or its requests are not read
                    line.sendall(requests(number))
            time.sleep(INTERVAL_S)
    print(f"{number} rounds of requests")


def requests(number: int) -> bytes:
    """Return a pull that is held, one with a long answer, and a heartbeat of a client."""
    held = RemotingCommand(
        code=int(RequestCode.PULL_MESSAGE), opaque=number,
        ext_fields=pull_ext("served", 0, queueId="1", **HELD),
    )  # fmt: skip
    unread = RemotingCommand(
        code=int(RequestCode.PULL_MESSAGE), opaque=number, ext_fields=pull_ext("large", 0)
    )
    joining = Heartbeat(
        client_id=f"c{number % 1000}", consumer_data_set=[consumer(f"g{number % 10}", "served")]
    )
    beat = RemotingCommand(
        code=int(RequestCode.HEART_BEAT), opaque=number, body=joining.to_json(), ext_fields={}
    )
    return b"".join(map(frames.encode, (held, unread, beat)))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
