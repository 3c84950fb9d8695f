"""Watch a member until it is healed: until it has re-fetched the damaged entries from its leader.

The member is joining (`raft.joining`), and healed once it may vote: then it holds durably what the
leader had, and the files that were set aside are deleted. Until then they are kept, unless the
volume has no room for them and the new log. Then they are deleted one by one, but only while the
member follows a leader: by then all other members have answered, and the leader holds every entry
that was ever acknowledged.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from dledger_node.healing import set_aside as files
from dledger_node.healing.set_aside import SetAside
from dledger_node.raft.core import Raft

logger = logging.getLogger(__name__)


class HealingProgress:
    """The progress of a member's healing, and the files that were set aside."""

    def __init__(self, folder: Path, core: Raft) -> None:
        self.healed_ranges = 0
        """Number of times this member was healed since its start."""
        self.healed_entries = 0
        """Entries that it re-fetched, as far as its checkpoint named them."""
        self._core = core
        self._set_aside = files.list_set_aside(folder)

    @property
    def active(self) -> bool:
        """Whether this member is not healed yet."""
        return bool(self._set_aside and self._core.joining)

    @property
    def missing_entries(self) -> int:
        """Number of lost entries that have not been re-fetched yet."""
        if not self.active:
            return 0
        _, last_index = lost_range(self._set_aside)
        return max(0, last_index - self._core.ledger_end_index)

    @property
    def description(self) -> str:
        """Human-readable progress; empty if nothing is to be healed."""
        if not self.active:
            return ""
        core = self._core
        return f"healing: {describe(self._set_aside, core.ledger_end_index)}; {core.joining}"

    async def clean_up(self, *, short_of_room: bool) -> None:
        """Delete set-aside files that are no longer needed, or that there is no room for.

        Raises OSError.
        """
        if not self._set_aside:
            return
        if not self._core.joining:
            await self._finish()
        elif short_of_room and self._core.leader_id is not None:
            await asyncio.to_thread(self._delete_one_file)

    async def _finish(self) -> None:
        first_index, last_index = lost_range(self._set_aside)
        if first_index >= 0:
            self.healed_ranges += 1
            self.healed_entries += max(0, last_index - first_index + 1)
            logger.warning("healed: %s", describe(self._set_aside, self._core.ledger_end_index))
        while self._set_aside:
            await asyncio.to_thread(files.delete, self._set_aside[0])
            del self._set_aside[0]

    def _delete_one_file(self) -> None:
        for aside in self._set_aside:
            path = files.delete_newest_file(aside)
            if path is not None:
                logger.warning("deleted the damaged file %s to make room for the new log", path)
                return


def lost_range(set_aside: Sequence[SetAside]) -> tuple[int, int]:
    """Return the first and the last entry that were set aside; -1 if unknown."""
    known = [aside for aside in set_aside if aside.first_index >= 0]
    first_index = min((aside.first_index for aside in known), default=-1)
    return first_index, max((aside.last_index for aside in known), default=-1)


def describe(set_aside: Sequence[SetAside], end_index: int) -> str:
    """Return a sentence on which entries are re-fetched, and how far the log has caught up."""
    first_index, last_index = lost_range(set_aside)
    lost = f"entries {first_index} to {last_index}"
    if last_index < first_index:
        lost = f"the entries after {first_index - 1}"
    return f"re-fetching {lost} from the leader; the log ends with entry {end_index} so far"
