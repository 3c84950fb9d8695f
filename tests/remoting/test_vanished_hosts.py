"""An idle link notices that its peer's host has vanished, though nothing resets it."""

import os
import subprocess
import sys

import pytest

from dledger_store_files.root import AS_ROOT

SCRIPT = """
import asyncio, contextlib, subprocess, sys, time
import uvloop
from dledger_node.remoting.peer_link import PeerLink
from dledger_wire.listener import hello_to, listening, until

class Owner:
    lost_s = 0.0
    def hello(self, peer_id):
        return hello_to(peer_id)
    def read_entries(self, push, bytes_max):
        return None
    def link_restored(self, peer_id):
        pass
    def link_lost(self, peer_id):
        self.lost_s = self.lost_s or time.monotonic()

async def main():
    owner = Owner()
    async with listening() as listener:
        link = PeerLink(owner, "n0", f"127.0.0.1:{listener.port}", dead_after_ms=2000,
                        uniform=lambda _, high: high)
        task = asyncio.create_task(link.run())
        await until(lambda: link.up)
        subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
        vanished_s = time.monotonic()
        async with asyncio.timeout(20):
            while not owner.lost_s:
                await asyncio.sleep(0.05)
        print(owner.lost_s - vanished_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

uvloop.run(main())
"""
LOST_WITHIN_S = 6.0


@AS_ROOT
def test_an_idle_link_to_a_host_that_has_vanished_is_lost_within_seconds() -> None:
    inside = ["sh", "-c", 'ip link set lo up && exec "$0" -c "$1"', sys.executable, SCRIPT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["unshare", "--net", *inside], env=environment, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    if "unshare failed" in done.stderr:
        pytest.skip(done.stderr)

    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < LOST_WITHIN_S
