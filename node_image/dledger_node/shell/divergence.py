"""Whether this member's folder holds another group's log.

The file `group` of a folder says whose it is. Where that file is missing, as in folders of earlier
releases and of Java, only the entries can tell. A log of another group can agree with the leader's
in index and term of an entry, which in one group means that all entries up to it are equal. The
chain of checksums then shows that they are not: no entry of the leader follows this log.

One such push proves little, since a bit may have changed on its way or on the leader's disk. So
this member confirms nothing more until a push follows its log, and closes the link: the leader
verifies what it sends over the next one. After
`PUSHES_MIN` such pushes, it verifies its own entry, and asks the leader for the proof that it
leads, as a linearizable read does. A leader that can give it has committed an entry of its term, so
a majority holds its log, and this log is the foreign one. A leader with a foreign log never can,
because the others refuse its entries.
"""

import logging
from collections.abc import Callable
from typing import Final

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.requests import Consistency
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import AppendRequest
from dledger_node.services.get import Reads
from dledger_node.shell.identity import GroupIdentity
from dledger_node.store.log.log_store import LogStore

logger = logging.getLogger(__name__)

PUSHES_MIN: Final = 3
"""Pushes of one leader in one term that do not follow the same entry, before it counts."""
_LEADER_IS_PROVED: Final = (
    DLedgerResponseCode.SUCCESS,
    DLedgerResponseCode.FALL_BEHIND_TOO_MUCH,
)
"""The answers to a linearizable read for which the leader has proved itself. The second one says
that this member did not reach the leader's index in time.
"""


class Divergence:
    """Counts the pushes that do not follow this log, and decides what they mean."""

    def __init__(
        self, core: Raft, store: LogStore, identity: GroupIdentity, reads: Callable[[], Reads]
    ) -> None:
        """`reads` returns the service of linearizable reads."""
        self._core = core
        self._store = store
        self._identity = identity
        self._reads = reads
        self._suspected: tuple[str, int, int] = ("", -1, -1)
        """The leader, its term, and the entry of this log that its entries do not follow."""
        self._count = 0
        self._is_asking = False

    def examines(self, push: AppendRequest, problem: str) -> bool:
        """Count a push that does not follow this log; return whether it should just be dropped.

        Otherwise the caller closes the link, and the leader verifies its entries.
        """
        if push.previous_index < 0:
            return False  # no entry was compared
        suspected = (push.sender, push.term, push.previous_index)
        if suspected != self._suspected:
            self._suspected, self._count = suspected, 0
        self._count += 1
        self._core.note_difference(push.sender, push.term)
        if self._count < PUSHES_MIN:
            return False
        if not self._is_asking and self._own_entry_is_sound(push.previous_index):
            logger.warning(
                "entry %d of this log is not that of %s, the leader of term %d, although it has "
                "the same term: %s. %s is asked whether a majority has its log",
                push.previous_index, push.sender, push.term, problem, push.sender,
            )  # fmt: skip
            self._is_asking = True
            self._reads().prove_read(
                Consistency.LINEARIZABLE, lambda code: self._answered(suspected, code)
            )
        return True

    def _own_entry_is_sound(self, index: int) -> bool:
        """Verify the entry as stored; damage is noted by the store, which gets it mended."""
        self._store.distrust()
        try:
            self._store.read_range(index, index, 1)
        except (StoreDamagedError, IndexError):
            return False
        return True

    def _answered(self, suspected: tuple[str, int, int], code: DLedgerResponseCode) -> None:
        self._is_asking = False
        leader_id, term, index = suspected
        follows = (self._core.leader_id, self._core.term) == (leader_id, term)
        if code in _LEADER_IS_PROVED and follows and suspected == self._suspected:
            self._identity.renounce(index)
