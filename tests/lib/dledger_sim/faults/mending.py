"""Members that mend rotten entries from each other: the node's own mender, on files.

The files of the damaged member and of its peers are written from their simulated disks. The node's
`healing/mending.py` reads, asks, verifies and writes as on a real disk; what it has written is then
compared with what the member once wrote.
"""

import enum
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dledger_node.healing.mending import CannotMendError, Mender
from dledger_node.store.log.damaged_ranges import LogShape, damaged_ranges
from dledger_node.store.small_files.checkpoint import Checkpoint
from dledger_sim.group.events import Events
from dledger_sim.group.member import SimMember
from dledger_sim.group.network import SimNetwork
from dledger_sim.group.stored_log import SHAPE, write_files, wrong_entries
from dledger_sim.judges.rot_rules import RotRules
from dledger_store_files.folder_peer import FolderPeer

_MEMORY: Final = Path("/dev/shm")
_FOLDER: Final = str(_MEMORY) if _MEMORY.is_dir() else None
"""A folder in memory, if there is one."""


class MendOutcome(enum.Enum):
    """The outcome for the damaged ranges of a log."""

    DONE = "done"
    LATER = "later"
    """A peer that gave no answer may have the bytes."""
    IMPOSSIBLE = "impossible"


class Mending:
    """Lets entries rot on any number of members, while each is sound on another, and mends them."""

    def __init__(
        self,
        members: Mapping[str, SimMember],
        network: SimNetwork,
        rules: RotRules,
        events: Events,
    ) -> None:
        self._members = members
        self._network = network
        self._rules = rules
        self._events = events

    def may_rot(self, member_id: str, index: int) -> bool:
        """Return whether another member has a committed entry that would be lost here.

        A sound committed entry must follow it: without one, nothing proves where damage ends.
        """
        disk = self._members[member_id].disk
        return index < disk.checkpoint and bool(self._holders(member_id, index))

    def mend(self, member_id: str) -> MendOutcome:
        """Mend every damaged range of a member that stays out."""
        disk = self._members[member_id].disk
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            root = Path(folder)
            log = write_files(disk, root / member_id, member_id)
            peers = self._peers(member_id, root)
            shape = LogShape(
                folder=log.root,
                segment_size_bytes=SHAPE.segment_bytes,
                index_segment_size_bytes=SHAPE.index_segment_bytes,
            )
            checkpoint = Checkpoint(
                end_index=len(disk.durable) - 1,
                committed_index=disk.checkpoint,
                begin_index=disk.begin_index,
            )
            failures = list(_mend_all(Mender(shape, peers, create_files=True), shape, checkpoint))
            wrong = wrong_entries(disk, root / "as it was", log)
            self._rules.mended(member_id, wrong, is_done=not failures)
        disk.rotten = {at: entry for at, entry in disk.rotten.items() if at in wrong}
        if not failures:
            return MendOutcome.DONE
        may_succeed = any(failure.may_succeed_later for failure in failures)
        return MendOutcome.LATER if may_succeed else MendOutcome.IMPOSSIBLE

    def sets_aside(self, member_id: str) -> None:
        """Check that no member sets aside a log that its peers can mend."""
        givers = [peer_id for peer_id in self._members if self._answers(member_id, peer_id)]
        can_be_mended = all(
            any(peer_id in givers for peer_id in self._holders(member_id, index))
            for index in self._members[member_id].disk.rotten
        )
        self._rules.sets_aside(member_id, can_be_mended=can_be_mended)

    def _holders(self, member_id: str, index: int) -> list[str]:
        """Return the other members that have this committed entry sound, and will know it."""
        entry = self._members[member_id].disk.durable[index]
        return [
            peer_id
            for peer_id, peer in self._members.items()
            if peer_id != member_id
            and peer.disk.durable[index : index + 1] == [entry]
            and index not in peer.disk.rotten
        ]

    def _committed_index(self, peer_id: str) -> int:
        peer = self._members[peer_id]
        known = peer.disk.checkpoint if peer.raft is None else peer.raft.committed_index
        return min(known, len(peer.disk.durable) - 1)

    def _answers(self, member_id: str, peer_id: str) -> bool:
        """Return whether a peer's process runs, in service or not, and can be reached."""
        links, peer = self._network.links, self._members[peer_id]
        runs = peer.raft is not None or peer.disk.damaged
        cut = links[member_id][peer_id].cut or links[peer_id][member_id].cut
        return runs and not cut and self._events.now_us >= peer.paused_until_us

    def _peers(self, member_id: str, root: Path) -> dict[str, FolderPeer]:
        peers = {}
        for peer_id, peer in self._members.items():
            if peer_id == member_id:
                continue
            if not self._answers(member_id, peer_id):
                peers[peer_id] = FolderPeer(root, _refuse)
                continue
            log = write_files(peer.disk, root / peer_id, peer_id)
            committed_index = self._committed_index(peer_id)
            last = log.places[committed_index] if committed_index >= 0 else None
            end_pos = 0 if last is None else last.pos + last.size
            peers[peer_id] = FolderPeer(log.root, end_pos=end_pos)
        return peers


def _mend_all(mender: Mender, shape: LogShape, checkpoint: Checkpoint) -> Iterator[CannotMendError]:
    """Mend every range that can be mended; yield the errors of the others (`StoreRepair`)."""
    for damaged in damaged_ranges(shape, checkpoint):
        try:
            mender.mend(damaged, checkpoint)
        except CannotMendError as failure:
            yield failure


def _refuse() -> None:
    raise OSError("does not answer")
