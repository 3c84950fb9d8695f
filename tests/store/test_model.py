"""A store compared with a list: the same operations leave both with the same entries."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dledger_formats.log import disk
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.store.derived.membership_bodies import body_of
from dledger_node.store.log.log_store import LogStore

SIZES = {"segment_size_bytes": 1024, "index_segment_size_bytes": 160}
LISTS_OF_BODIES = st.lists(st.binary(max_size=400), min_size=1, max_size=8)


class StoreAgainstList(RuleBasedStateMachine):
    """A leader's store, a follower's store, and the list of the entries that both must hold."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.top = tempfile.TemporaryDirectory(dir=folder)
        self.entries: list[tuple[int, int, bytes]] = []
        self.memberships: list[MembershipEntry] = []
        self.term = 0
        self.durable_index = -1
        self.kills = 0
        self.folder = Path(self.top.name) / "leader"

    @initialize()
    def open(self) -> None:
        self.leader = LogStore.open(self.folder, **SIZES)
        self.follower = LogStore.open(Path(self.top.name) / "follower", **SIZES)

    @rule(bodies=LISTS_OF_BODIES)
    def append(self, bodies: list[bytes]) -> None:
        first_index = len(self.entries)
        self.entries += [(disk.NORMAL, self.term, body) for body in bodies]
        assert self.leader.append_bodies(bodies, self.term) == (first_index, len(self.entries) - 1)

    @rule()
    def begin_a_term(self) -> None:
        self.term += 1
        self.entries.append((disk.NOOP, self.term, b""))
        assert self.leader.append_noop(self.term) == len(self.entries) - 1

    @rule(learners=st.sets(st.sampled_from(["n1", "n2", "n3"])))
    def change_the_membership(self, learners: set[str]) -> None:
        index, membership = len(self.entries), Membership(("n0",), tuple(sorted(learners)))
        body = body_of(membership)
        self.entries.append((disk.NOOP, self.term, body))
        self.memberships.append(MembershipEntry(index, membership))
        self.leader.append_bodies([body], self.term, [MEMBERSHIP_CHANNEL], disk.NOOP)

    @rule()
    def flush(self) -> None:
        target = self.leader.flush_target()
        self.leader.flush(target)
        self.leader.flushed(target)
        self.durable_index = len(self.entries) - 1

    @rule(share=st.floats(0, 1))
    def save_checkpoint(self, share: float) -> None:
        self.leader.save_checkpoint(int(share * len(self.entries)) - 1)

    @rule()
    def preallocate(self) -> None:
        self.leader.preallocate()

    @precondition(lambda self: len(self.entries) > self.leader.committed_index + 1)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        first_index = data.draw(st.integers(self.leader.committed_index + 1, len(self.entries) - 1))
        self.leader.truncate(first_index)
        if self.follower.end_index >= first_index:
            self.follower.truncate(first_index)
        del self.entries[first_index:]
        self.memberships = [entry for entry in self.memberships if entry.index < first_index]
        self.durable_index = min(self.durable_index, first_index - 1)
        self.term += 1

    @precondition(lambda self: self.follower.end_index < len(self.entries) - 1)
    @rule(bytes_max=st.integers(1, 2000), again=st.integers(0, 3))
    def push(self, bytes_max: int, again: int) -> None:
        following = self.follower.end_index + 1
        term = self.entries[following][1]
        first_index = max(0, following - again)
        while self.entries[first_index][1] != term:
            first_index += 1
        end = following
        while end < len(self.entries) and self.entries[end][1] == term:
            end += 1
        views, last_index = self.leader.read_range(first_index, end - 1, bytes_max)
        tail = self.leader.tail(first_index, last_index)
        assert tail is None or bytes(tail) == b"".join(views)
        if last_index < following:
            return
        block = self.follower.check_block(
            b"".join(views),
            previous_index=first_index - 1,
            previous_term=self.entries[first_index - 1][1] if first_index else -1,
            last_index=last_index,
            term=term,
        )
        self.follower.reserve_block(block)
        self.follower.append_block(block, first_index=following, last_index=last_index)

    @rule()
    def close_and_open(self) -> None:
        committed_index = self.leader.committed_index
        self.leader.close()
        self.leader = LogStore.open(self.folder, **SIZES)
        self.durable_index = len(self.entries) - 1
        assert self.leader.committed_index == committed_index
        assert self.leader.recovery.cut_bytes == 0

    @rule()
    def kill_and_open(self) -> None:
        """Open a copy of the folder: writes are in the page cache, as after a kill."""
        committed_index = self.leader.committed_index
        self.kills += 1
        left = Path(self.top.name) / f"killed-{self.kills}"
        shutil.copytree(self.folder, left)
        self.leader.close()
        self.folder = left
        self.leader = LogStore.open(left, **SIZES)
        self.durable_index = len(self.entries) - 1
        assert self.leader.committed_index == committed_index
        assert self.leader.recovery.cut_bytes == 0

    @invariant()
    def both_hold_what_the_list_holds(self) -> None:
        if not hasattr(self, "leader"):
            return
        assert self.leader.end_index == len(self.entries) - 1
        assert self.leader.durable_index == self.durable_index
        for store in (self.leader, self.follower):
            end = store.end_index + 1
            found = [store.entry(index) for index in range(end)]
            assert [(head.magic, head.term, body) for head, body in found] == self.entries[:end]
            assert store.term_runs() == runs_of(self.entries[:end])
            known = tuple(entry for entry in self.memberships if entry.index < end)
            assert store.memberships.entries == known

    def teardown(self) -> None:
        self.leader.close()
        self.follower.close()
        self.top.cleanup()


def runs_of(entries: list[tuple[int, int, bytes]]) -> list[tuple[int, int]]:
    return [
        (index, term)
        for index, (_, term, _) in enumerate(entries)
        if index == 0 or entries[index - 1][1] != term
    ]


def test_a_store_and_a_list_hold_the_same_entries(memory_path: Path) -> None:
    run_state_machine_as_test(
        lambda: StoreAgainstList(memory_path),
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
