"""What the soak does to the members: one strike after the other, each on a group that is whole.

Only a strike on the leader may change the term: its kill, its stop, its freeze, or a transfer.
"""

import asyncio
import contextlib
import http.client
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from dledger_client.client import DLedgerClient
from dledger_client.errors import ClientError
from dledger_formats.http.status import NodeStatus, StorageState
from dledger_formats.log import disk
from dledger_formats.protocol.membership_change import ChangeKind
from tools.groups.mixed_group import MixedGroup
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

WHOLE_S_MAX: Final = 120.0
"""A group that is not whole after this is broken."""
DOWN_S_MAX: Final = 2.0
FROZEN_S: Final = (1.0, 4.0)
ROTTEN_MAX: Final = 3
"""Members that rot in one strike, each in a segment of its own."""
SWAPS_PER_ROUND: Final = 4
"""How many release changes there are for one of each other strike."""
FLIPPED_BITS: Final = 0x55
GUEST: Final = "n3"
"""The member that joins and leaves."""

RottenByte = tuple[Path, int, int]
"""A file, a position in it, and the sound byte there."""


class Strikes:
    """Draws and performs strikes."""

    def __init__(
        self,
        group: NodeGroup,
        client: DLedgerClient,
        rng: random.Random,
        blame: Callable[[str], None],
        *,
        spared: str,
    ) -> None:
        """`spared` is a member that is never killed, so that its memory can be watched."""
        self.counts: Counter[str] = Counter()
        self.changes_of_term = 0
        self._group = group
        self._client = client
        self._rng = rng
        self._blame = blame
        self._spared = spared

    async def run(self, until_s: float, quiet_s: float) -> None:
        """Strike until a time of the monotonic clock; let the group work `quiet_s` in between."""
        acts: list[Callable[[], Awaitable[bool]]] = [
            self.kill, self.freeze, self.rot, self.scale, self.transfer, self.rot_and_kill,
        ]  # fmt: skip
        if isinstance(self._group, MixedGroup):
            acts = [self.swap_release] * SWAPS_PER_ROUND + acts
        waiting: list[Callable[[], Awaitable[bool]]] = []
        term = await asyncio.to_thread(self.wait_until_whole)
        while time.monotonic() < until_s:
            await asyncio.sleep(quiet_s)
            term = await self._expect(term, "nothing was struck")
            waiting = waiting or self._rng.sample(acts, len(acts))
            act = waiting.pop()
            is_excused = await act()
            self.counts[act.__name__] += 1
            await asyncio.to_thread(self.wait_until_whole)
            if is_excused:
                after = await asyncio.to_thread(self._term)
                self.changes_of_term += after - term
                term = after
            term = await self._expect(term, f"of the strike {act.__name__}")

    async def _expect(self, term: int, when: str) -> int:
        now = await asyncio.to_thread(self._term)
        if now != term:
            self._blame(f"the term went from {term} to {now} although only {when}")
        return now

    # -- strikes: each returns whether it may change the term --------------------------------------

    async def kill(self) -> bool:
        """Kill a member with SIGKILL, and start it again."""
        member = self._draw(spare=True)
        leads = member == await asyncio.to_thread(self._group.master)
        await self._kill(member)
        return leads

    async def swap_release(self) -> bool:
        """Stop or kill a member, and start it again under the other release."""
        assert isinstance(self._group, MixedGroup)
        member = self._draw(spare=True)
        leads = member == await asyncio.to_thread(self._group.master)
        self._group.swap_release(member)
        if self._rng.random() < 0.5:
            await self._kill(member)
        else:
            await asyncio.to_thread(self._group.stop, member)
            self._group.start(member)
        return leads

    async def freeze(self) -> bool:
        """Suspend a member for a while."""
        member = self._draw()
        leads = member == await asyncio.to_thread(self._group.master)
        self._group.freeze(member)
        await asyncio.sleep(self._rng.uniform(*FROZEN_S))
        self._group.thaw(member)
        return leads

    async def rot(self) -> bool:
        """Flip a byte in sealed segments of running members, in a different segment of each."""
        rotten = await asyncio.to_thread(self._rot)
        for byte in rotten.values():
            await asyncio.to_thread(self._wait_until_mended, byte)
        return False

    async def rot_and_kill(self) -> bool:
        """Flip bytes of members as `rot` does, and kill one of these members at once."""
        rotten = await asyncio.to_thread(self._rot)
        leads = False
        for member in sorted(set(rotten) - {self._spared})[:1]:
            leads = member == await asyncio.to_thread(self._group.master)
            await self._kill(member)
        for byte in rotten.values():
            await asyncio.to_thread(self._wait_until_mended, byte)
        return leads

    async def transfer(self) -> bool:
        """Hand the leadership to another voter."""
        master = await asyncio.to_thread(self._group.master)
        voters = [member for member in self._group.peers if member != master]
        await self._again(lambda: self._client.transfer(self._rng.choice(voters)))
        return True

    async def scale(self) -> bool:
        """Let a member join with an empty disk, or leave the group."""
        if GUEST in self._group.running():
            handed_over = await asyncio.to_thread(self._group.master) == GUEST
            if handed_over:
                await self.transfer()
            await self._change(ChangeKind.REMOVE)
            await asyncio.to_thread(self._group.stop, GUEST)
            await asyncio.to_thread(shutil.rmtree, self._group.store_folder(GUEST))
            return handed_over
        self._group.start(GUEST)
        await asyncio.to_thread(self._group.wait_until_up, GUEST)
        await self._change(ChangeKind.ADD_LEARNER)
        await self._change(ChangeKind.PROMOTE)
        return False

    # -- helpers -----------------------------------------------------------------------------------

    def wait_until_whole(self) -> int:
        """Wait until all members are sound, ready and hold what is committed now; return the term.

        Raises AssertionError if that takes longer than `WHOLE_S_MAX`.
        """
        aims: list[int] = []

        def whole() -> list[int]:
            with contextlib.suppress(OSError, http.client.HTTPException):
                views = [self._group.status(member) for member in self._group.running()]
                aims.append(max(view.committed_index for view in views))
                terms = {view.term for view in views}
                if len(terms) == 1 and all(is_whole(view, aims[0]) for view in views):
                    return [terms.pop()]
            return []

        return wait_for(whole, "all members are whole", WHOLE_S_MAX, poll_s=0.1)[0]

    def _draw(self, *, spare: bool = False) -> str:
        members = set(self._group.running()) - ({self._spared} if spare else set())
        return self._rng.choice(sorted(members))

    async def _kill(self, member: str) -> None:
        self._group.kill(member)
        await asyncio.sleep(self._rng.uniform(0, DOWN_S_MAX))
        self._group.start(member)

    def _rot(self) -> dict[str, RottenByte]:
        """Flip a byte of some members; return the byte of each."""
        count = self._rng.randint(1, ROTTEN_MAX)
        members = self._rng.sample(self._group.running(), min(count, len(self._group.running())))
        sealed = self._group.manifest(members[0]).data[:-2]
        segments = self._rng.sample(sealed, min(len(members), len(sealed)))
        rotten = {}
        for member, segment in zip(members, segments, strict=False):
            path = self._group.store_folder(member) / disk.DATA_FOLDER / segment.name
            position = self._rng.randrange(entries_end(path.read_bytes()))
            rotten[member] = (path, position, flip_byte(path, position))
        return rotten

    def _wait_until_mended(self, byte: RottenByte) -> None:
        path, position, sound = byte
        wait_for(
            lambda: path.exists() and byte_at(path, position) == sound,
            f"byte {position} of {path} is mended",
            WHOLE_S_MAX,
            poll_s=0.1,
        )

    def _term(self) -> int:
        return max(self._group.status(member).term for member in self._group.running())

    async def _change(self, kind: ChangeKind) -> None:
        await self._again(lambda: self._client.change_membership(kind, GUEST))

    async def _again(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Repeat a request until it succeeds."""
        async with asyncio.timeout(WHOLE_S_MAX):
            while True:
                try:
                    await ask()
                except ClientError:
                    await asyncio.sleep(0.2)
                else:
                    return


def is_whole(view: NodeStatus, committed_index: int) -> bool:
    """Return whether a member is in service with a sound log up to an index."""
    return (
        view.ready
        and not view.joining
        and view.storage is StorageState.SOUND
        and view.committed_index >= committed_index
    )


def entries_end(data: bytes) -> int:
    """Return where the last entry of a sealed segment ends.

    What follows belongs to no entry: no checksum covers it, so damage there cannot be detected.
    """
    at = 0
    while at + disk.ENTRY_HEADER_SIZE <= len(data):
        header = disk.unpack_header(data, at)
        if header.magic not in disk.ENTRY_MAGICS:
            break
        at += header.size
    return at


def byte_at(path: Path, position: int) -> int:
    """Return one byte of a file."""
    with path.open("rb") as file:
        return os.pread(file.fileno(), 1, position)[0]


def flip_byte(path: Path, position: int) -> int:
    """Flip bits of one byte of a file; return the byte as it was."""
    sound = byte_at(path, position)
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), bytes([sound ^ FLIPPED_BITS]), position)
    return sound
