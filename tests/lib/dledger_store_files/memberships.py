"""A log whose membership changes three times, and the operations of a running member on it."""

from dledger_formats.log import disk
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.store.derived.membership_bodies import body_of
from dledger_node.store.log.log_store import LogStore

THREE = ("n0", "n1", "n2")
LEARNS = Membership(THREE, ("n3",))
VOTES = Membership(("n0", "n1", "n2", "n3"))
GONE = Membership(THREE)
ENTRIES = (MembershipEntry(4, LEARNS), MembershipEntry(9, VOTES), MembershipEntry(14, GONE))


def change(store: LogStore, membership: Membership, term: int = 1) -> int:
    """Append a membership entry; return its index."""
    bodies = [body_of(membership)]
    return store.append_bodies(bodies, term, [MEMBERSHIP_CHANNEL], disk.NOOP)[0]


def fill(store: LogStore) -> None:
    """Append three membership entries among ordinary ones, each in its own segment.

    The segments begin with the entries 2, 7 and 12.
    """
    store.append_bodies([bytes(1900)] * 2, term=1)
    for membership in (LEARNS, VOTES, GONE):
        store.append_bodies([bytes(900)] * 2, term=1)
        change(store, membership)
        store.append_bodies([bytes(900)] * 2, term=1)
    store.append_bodies([bytes(900)], term=1)
