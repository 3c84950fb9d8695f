"""An idle link notices that the other host has vanished, though nothing resets it."""

import os
import subprocess
import sys

import pytest

from dledger_store_files.root import AS_ROOT

PEER_LINK = """
from dledger_node.remoting.peer_link import PeerLink
from dledger_wire.listener import hello_to

class Owner(Losses):
    def hello(self, peer_id):
        return hello_to(peer_id)
    def read_entries(self, push, bytes_max):
        return None
    def link_restored(self, peer_id):
        pass
    def link_lost(self, peer_id):
        self.note()

async def linked(owner, port):
    link = PeerLink(owner, "n0", f"127.0.0.1:{port}", dead_after_ms=2000,
                    uniform=lambda _, high: high)
    owner.task = asyncio.create_task(link.run())
    await until(lambda: link.up)
"""
LEADER_LINK = """
from dledger_node.remoting.leader_link import LeaderLink

class Owner(Losses):
    def lost(self, leader_id, waiting, *, were_sent):
        self.note()

async def linked(owner, port):
    owner.link = LeaderLink(owner, "n0")
    owner.link.open("127.0.0.1", port)
    await until(lambda: owner.link.was_made)
"""
SCRIPT = """
import asyncio, subprocess, time
import uvloop
from dledger_wire.listener import listening, until

class Losses:
    lost_s = 0.0
    def note(self):
        self.lost_s = self.lost_s or time.monotonic()

LINK

async def main():
    owner = Owner()
    async with listening() as listener:
        await linked(owner, listener.port)
        subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
        vanished_s = time.monotonic()
        async with asyncio.timeout(20):
            while not owner.lost_s:
                await asyncio.sleep(0.05)
        print(owner.lost_s - vanished_s)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

uvloop.run(main())
"""
LOST_WITHIN_S = 9.0


@AS_ROOT
@pytest.mark.parametrize(
    "link", [PEER_LINK, LEADER_LINK], ids=["to-a-peer", "from-a-follower-to-its-leader"]
)
def test_an_idle_link_to_a_host_that_has_vanished_is_lost_within_seconds(link: str) -> None:
    script = SCRIPT.replace("LINK\n", link)
    inside = ["sh", "-c", 'ip link set lo up && exec "$0" -c "$1"', sys.executable, script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["unshare", "--net", *inside], env=environment, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    if "unshare failed" in done.stderr:
        pytest.skip(done.stderr)

    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < LOST_WITHIN_S
