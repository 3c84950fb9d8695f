"""Whether this member's folder, or its leader's, holds another group's log.

The file `group` of a folder names the group that owns it. Where that file is missing, as in folders
of earlier releases and of Java, only the entries can show this. A log of another group can agree
with the leader's in index and term of an entry, which in one group means that all entries up to it
are equal. The chain of checksums then shows that they are not: no entry of the leader follows this
log.

One such push proves little, since a bit may have changed on its way or on the leader's disk. So
this member confirms nothing more until a push follows its log, and closes the link: the leader
verifies what it sends over the next one. After `PUSHES_MIN` such pushes, it verifies its own entry,
and asks the leader for its index, as a linearizable read does. That index is not before the
leader's first entry of its term. What counts is whether the leader then states that this index is
committed:

- If so, a majority holds the leader's log, and this log is the foreign one.
- If not, too few members may be up, or the leader's log is the foreign one: the others refuse its
  entries, and it would lead forever without committing any, since they answer its heartbeats. So
  after `UNPROVED_TIMEOUTS`, this member ignores what that leader asks for, most of the time: it
  listens for `HEARD_TIMEOUTS` after each `IGNORED_TIMEOUTS`, because the leader may be right and
  have committed meanwhile. Once enough members ignore it at the same time, it stops leading, and
  one of them is elected. They begin at different times, so the times of ignoring must be long
  enough for those of enough members to overlap, even in a group of seven. To the core all this
  looks like a network that loses messages, so no rule of Raft depends on it.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from dledger_node.errors import StoreDamagedError
from dledger_node.limited_log import LineBudget
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    InstallSnapshotRequest,
    PreVoteRequest,
    TakeLeadershipRequest,
    VoteRequest,
)
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.read_index_messages import NOT_LEADING
from dledger_node.services.read_proofs import ReadProofs
from dledger_node.shell.identity import GroupIdentity
from dledger_node.store.log.log_store import LogStore

logger = logging.getLogger(__name__)

PUSHES_MIN: Final = 3
"""How many pushes of one leader in one term must fail to follow the same entry before that leader
is asked for its index.
"""
ENTRIES_MAX: Final = 16
"""Maximum number of entries to count pushes for; a leader that probes returns to few."""
UNPROVED_TIMEOUTS: Final = 20
"""Election timeouts that a leader may take to commit its read index."""
IGNORED_TIMEOUTS: Final = 10
"""Election timeouts for which a leader that may have a foreign log is ignored at a time."""
HEARD_TIMEOUTS: Final = 2
"""Election timeouts for which such a leader is then listened to before it is ignored again."""
_REQUESTS: Final = (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    InstallSnapshotRequest,
    PreVoteRequest,
    TakeLeadershipRequest,
    VoteRequest,
)
"""The requests of leaders and candidates; answers are accepted from all members."""


class _Suspected(NamedTuple):
    """A leader in a term, some of whose entries do not follow this log."""

    leader_id: str
    term: int


_NOBODY: Final = _Suspected("", -1)


class Divergence:
    """Counts the pushes that do not follow this log, and decides what they mean."""

    def __init__(
        self,
        core: Raft,
        store: LogStore,
        identity: GroupIdentity,
        proofs: Callable[[], ReadProofs],
        *,
        now_s: Callable[[], float],
        election_timeout_s: float,
    ) -> None:
        """`proofs` returns the service that asks the leader for its index."""
        self._core = core
        self._store = store
        self._identity = identity
        self._proofs = proofs
        self._now_s = now_s
        self._lines = LineBudget(now_s)
        self._unproved_s = UNPROVED_TIMEOUTS * election_timeout_s
        self._ignored_s = IGNORED_TIMEOUTS * election_timeout_s
        self._heard_s = HEARD_TIMEOUTS * election_timeout_s
        self._suspected = _NOBODY
        self._counts: dict[int, int] = {}
        """The pushes of that leader that do not follow an entry, by the entry's index."""
        self._is_asking = False
        self._read_index: int | None = None
        """The read index that the suspected leader has answered with; None before that."""
        self._proof_due_s = 0.0
        self._ignored_id = ""
        self._ignored_until_s = 0.0

    def ignores(self, message: PeerMessage) -> bool:
        """Return whether this is a request of a member whose log may be foreign."""
        return (
            message.sender == self._ignored_id
            and isinstance(message, _REQUESTS)
            and self._now_s() < self._ignored_until_s
        )

    def examines(self, push: AppendRequest, problem: str) -> bool:
        """Count a push that does not follow this log; return whether it should just be dropped.

        Otherwise the caller closes the link, and the leader verifies its entries.
        """
        if push.previous_index < 0:
            return False  # no entry was compared
        suspected, index = _Suspected(push.sender, push.term), push.previous_index
        if suspected != self._suspected:
            self._suspect(suspected)
        if len(self._counts) >= ENTRIES_MAX and index not in self._counts:
            self._counts.clear()
        self._counts[index] = count = self._counts.get(index, 0) + 1
        self._core.note_difference(push.sender, push.term)
        if count < PUSHES_MIN:
            return False
        if self._own_entry_is_sound(index):
            if self._read_index is not None:
                self._judge(index, push.committed_index, self._read_index)
            elif not self._is_asking:
                self._ask(suspected, index, problem)
        return True

    def _suspect(self, suspected: _Suspected) -> None:
        self._suspected, self._read_index = suspected, None
        self._counts.clear()

    def _ask(self, suspected: _Suspected, index: int, problem: str) -> None:
        admitted = self._lines.admit("asked")
        if admitted is not None:
            logger.warning(
                "entry %d of this log is not that of %s, the leader of term %d, although it has "
                "the same term: %s. %s is asked whether a majority has its log%s",
                index, *suspected, problem, suspected.leader_id, admitted,
            )  # fmt: skip
        self._is_asking = True
        self._proofs().ask_index(lambda read_index: self._note_read_index(suspected, read_index))

    def _own_entry_is_sound(self, index: int) -> bool:
        """Verify the entry as stored; the store records damage, which is then mended."""
        self._store.distrust()
        try:
            self._store.read_range(index, index, 1)
        except (StoreDamagedError, IndexError):
            return False
        return True

    def _note_read_index(self, suspected: _Suspected, index: int) -> None:
        self._is_asking = False
        follows = (self._core.leader_id, self._core.term) == suspected
        if index != NOT_LEADING and follows and suspected == self._suspected:
            self._read_index, self._proof_due_s = index, self._now_s() + self._unproved_s

    def _judge(self, own_index: int, committed_index: int, read_index: int) -> None:
        """Compare the leader's committed index with its read index."""
        suspected = self._suspected
        if committed_index >= read_index:
            self._identity.renounce(own_index)
        elif self._now_s() >= self._proof_due_s:
            logger.error(
                "%s leads term %d, but has committed no entry of it: entries up to %d are "
                "committed there, and that term begins with entry %d or an earlier one. Its log "
                "may be another group's, so its requests are ignored for %.0f s",
                *suspected, committed_index, read_index, self._ignored_s,
            )  # fmt: skip
            self._ignored_id = suspected.leader_id
            self._ignored_until_s = self._now_s() + self._ignored_s
            self._proof_due_s = self._ignored_until_s + self._heard_s
