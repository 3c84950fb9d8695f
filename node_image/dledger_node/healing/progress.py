"""A member that takes again from its leader what was damaged: how far it is, and when it is whole.

It joins (`raft.joining`), and is whole once it may vote: then all that the leader had is here,
durably, and what was set aside is deleted. Until then it is kept, unless the volume has no room for
both. Then it goes file by file, but only while the member heeds a leader: all others have answered
by then, and that leader holds all that was ever acknowledged.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from dledger_node.healing import set_aside as files
from dledger_node.healing.set_aside import SetAside
from dledger_node.raft.core import Raft

logger = logging.getLogger(__name__)


class Healing:
    """What was set aside, and what becomes of it."""

    def __init__(self, folder: Path, core: Raft) -> None:
        self.healed_ranges = 0
        """How often this member became whole again, since its start."""
        self.healed_entries = 0
        """Entries that were taken again on the way, as far as the checkpoint knew of them."""
        self._core = core
        self._set_aside = files.set_aside(folder)

    @property
    def under_way(self) -> bool:
        """Whether this member has yet to become whole."""
        return bool(self._set_aside and self._core.joining)

    @property
    def missing_entries(self) -> int:
        """How many of the entries that were here are missing still."""
        if not self.under_way:
            return 0
        _, last_index = lost_range(self._set_aside)
        return max(0, last_index - self._core.ledger_end_index)

    @property
    def progress(self) -> str:
        """For people; empty when there is nothing to heal."""
        if not self.under_way:
            return ""
        core = self._core
        return f"healing: {progress(self._set_aside, core.ledger_end_index)}; {core.joining}"

    async def tend(self, *, short_of_room: bool) -> None:
        """Delete what is needed no more, or what there is no room for. OSError."""
        if not self._set_aside:
            return
        if not self._core.joining:
            await self._finish()
        elif short_of_room and self._core.leader_id is not None:
            await asyncio.to_thread(self._give_up_a_file)

    async def _finish(self) -> None:
        first_index, last_index = lost_range(self._set_aside)
        if first_index >= 0:
            self.healed_ranges += 1
            self.healed_entries += max(0, last_index - first_index + 1)
            logger.warning("healed: %s", progress(self._set_aside, self._core.ledger_end_index))
        while self._set_aside:
            await asyncio.to_thread(files.drop, self._set_aside[0])
            del self._set_aside[0]

    def _give_up_a_file(self) -> None:
        for aside in self._set_aside:
            path = files.give_up_a_file(aside)
            if path is not None:
                logger.warning("deleted %s, for there is no room for it and the sound log", path)
                return


def lost_range(set_aside: Sequence[SetAside]) -> tuple[int, int]:
    """First and last of the entries that were set aside; -1 where that is not known."""
    known = [aside for aside in set_aside if aside.first_index >= 0]
    first_index = min((aside.first_index for aside in known), default=-1)
    return first_index, max((aside.last_index for aside in known), default=-1)


def progress(set_aside: Sequence[SetAside], end_index: int) -> str:
    """Which entries are taken again, and how far that is."""
    first_index, last_index = lost_range(set_aside)
    lost = f"entries {first_index} to {last_index} are"
    if last_index < first_index:
        lost = f"what follows entry {first_index - 1} is"
    return f"{lost} taken again from the leader, and the log ends with entry {end_index} so far"
