"""What a crash may leave of a member's disk.

A crash may come at any moment of a Ready. It leaves

- term and vote as last saved;
- the durable log and any prefix of what was written since; or, if the log was truncated since the
  last flush, any prefix of the log before the truncation;
- as committed index, any index that was both committed and durable, or none.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dledger_node.raft.core import Raft
from dledger_node.raft.ready import HardState, Ready, Truncate
from dledger_sim.search.judge import Terms


class Disk(NamedTuple):
    """The durable and the written content of a member's disk."""

    hard_state: HardState
    terms: Terms
    """The log as written."""
    durable_index: int
    earlier: frozenset[Terms]
    """The log before each truncation since the last flush."""
    committed_index: int
    votes: frozenset[tuple[int, str]]
    """Earlier terms, and the other member that got this member's vote in each. No disk holds them.
    They keep apart two paths with votes for different members: merged, both votes would be in
    transit.
    """


class Image(NamedTuple):
    """The content of a disk after a crash."""

    hard_state: HardState
    terms: Terms
    committed_index: int
    votes: frozenset[tuple[int, str]]


def disk_after(raft: Raft, before: Disk, ready: Ready | None) -> Disk:
    """Return the disk after the writes of a Ready, or after the last one if `ready` is None."""
    log = raft._member.log
    terms = tuple([log.term_at(index) for index in range(log.end_index + 1)])
    earlier = before.earlier
    if raft.durable_index == raft.ledger_end_index:
        earlier = frozenset()
    elif ready is not None and any(isinstance(write, Truncate) for write in ready.writes):
        earlier |= {before.terms}
    hard_state, votes = raft._saved_hard_state, before.votes
    if hard_state.term > before.hard_state.term:
        voted_for = before.hard_state.vote_for
        if voted_for is not None and voted_for != raft.config.self_id:
            votes |= {(before.hard_state.term, voted_for)}
    return Disk(hard_state, terms, raft.durable_index, earlier, raft.committed_index, votes)


def images(disk: Disk) -> Iterator[Image]:
    """Yield every content that a crash may leave."""
    hard_state, terms, durable_index, earlier, committed_index, votes = disk
    logs = {
        log[:count] for log in (terms, *earlier) for count in range(durable_index + 1, len(log) + 1)
    }
    for log in logs:
        for index in range(-1, min(committed_index, durable_index) + 1):
            yield Image(hard_state, log, index, votes)
