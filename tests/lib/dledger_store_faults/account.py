"""The promises of a story, and the judge whether a folder keeps them.

The lines of a story, each reported before or after the operation that it names:

    write FIRST TERM COUNT   before entries are copied into the log
    change INDEX TERM        before a membership entry is
    durable INDEX            after a flush, when entries up to INDEX may be acknowledged
    cut? FIRST               before a truncation         cut FIRST          after it
    vote? TERM MEMBER        before a vote is saved      vote TERM MEMBER   after it
    committed INDEX          after a checkpoint
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dledger_node.errors import NodeError
from dledger_node.raft.membership import MembershipEntry
from dledger_node.raft.ready import HardState
from dledger_node.store.derived import membership_bodies
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import load_hard_state
from dledger_store_faults.contents import body_of, membership_at
from dledger_store_faults.tally import Tally

NO_CANDIDATE = "-"
_NO_VOTE = HardState(term=0, vote_for=None)


@dataclass(slots=True)
class Account:
    """The promises of one store; after a judgement they are those of the store that was found."""

    sizes: dict[str, int]
    terms: list[int] = field(default_factory=list)
    """The term of each entry of the longest log that may be found; a prefix may be found too."""
    changes: set[int] = field(default_factory=set)
    """Indexes of the membership entries."""
    durable_index: int = -1
    """The end of the shortest log that may be found."""
    committed_index: int = -1
    hard_state: HardState = _NO_VOTE
    coming_hard_state: HardState = _NO_VOTE
    """The hard state that is being saved, or the saved one."""

    def copy(self) -> "Account":
        """Return a copy of the account."""
        return dataclasses.replace(self, terms=list(self.terms), changes=set(self.changes))

    def process(self, line: str) -> None:
        """Process one line of a story."""
        verb, *words = line.split()
        match verb:
            case "write":
                first, term, count = map(int, words)
                self._cut(first)
                self.terms += [term] * count
            case "change":
                index, term = map(int, words)
                self._cut(index)
                self.terms.append(term)
                self.changes.add(index)
            case "durable":
                self.durable_index = max(self.durable_index, int(words[0]))
            case "cut?":
                self.durable_index = min(self.durable_index, int(words[0]) - 1)
            case "cut":
                self._cut(int(words[0]))
            case "vote?":
                self.coming_hard_state = _hard_state(words)
            case "vote":
                self.hard_state = self.coming_hard_state = _hard_state(words)
            case "committed":
                self.committed_index = max(self.committed_index, int(words[0]))
            case _:
                raise ValueError(line)

    def process_all(self, lines: Iterable[str]) -> None:
        """Process many lines."""
        for line in lines:
            self.process(line)

    def found(self, end_index: int, committed_index: int) -> None:
        """Continue with the content of an opened store, which is promised as a whole."""
        self._cut(end_index + 1)
        self.durable_index = len(self.terms) - 1
        self.committed_index = committed_index

    def judge(self, folder: Path, tally: Tally) -> None:
        """Open a store after a fault, count and judge it, and continue with its content."""
        tally.faults += 1
        tally.acknowledged += self.durable_index + 1
        try:
            store = LogStore.open(folder, **self.sizes)
        except (NodeError, OSError) as error:
            tally.blame([f"the store does not open: {error!r}"])
            return
        try:
            tally.cut_tails += store.recovery.cut_bytes > 0
            tally.lost_unacknowledged += len(self.terms) - 1 - store.end_index
            tally.blame(self._broken_by_log(store))
            tally.blame(self._broken_by_memberships(store))
            tally.blame(self._broken_by_hard_state(folder, store))
            self.found(store.end_index, store.committed_index)
        finally:
            store.close()

    def _cut(self, first: int) -> None:
        del self.terms[first:]
        self.changes = {index for index in self.changes if index < first}

    def _body(self, index: int) -> bytes:
        term = self.terms[index]
        if index in self.changes:
            return membership_bodies.body_of(membership_at(index, term))
        return body_of(index, term)

    def _broken_by_memberships(self, store: LogStore) -> list[str]:
        expected = tuple(
            MembershipEntry(index, membership_at(index, self.terms[index]))
            for index in sorted(self.changes)
            if index <= store.end_index
        )
        found = store.memberships.entries
        return [] if found == expected else [f"memberships {found}, where {expected} were written"]

    def _broken_by_log(self, store: LogStore) -> list[str]:
        broken = []
        if store.end_index < self.durable_index:
            broken.append(
                f"entries {store.end_index + 1} to {self.durable_index} were acknowledged and are "
                f"lost ({store.recovery})"
            )
        if store.committed_index < self.committed_index:
            broken.append(f"committed {self.committed_index}, found {store.committed_index}")
        if store.end_index >= len(self.terms):
            broken.append(f"entry {store.end_index} was never written")
        for index in range(store.begin_index, min(store.end_index + 1, len(self.terms))):
            try:
                header, body = store.entry(index)
            except NodeError as error:
                broken.append(f"entry {index} cannot be read: {error}")
                break
            expected = (index, self.terms[index])
            if (header.index, header.term) != expected or body != self._body(index):
                broken.append(f"entry {index}: {header}, where term {expected[1]} was written")
                break
        return broken

    def _broken_by_hard_state(self, folder: Path, store: LogStore) -> list[str]:
        try:
            found = load_hard_state(folder, store.end_term)
            # The member is joining until a first state is saved, which no story waits for.
            found = dataclasses.replace(found, joining=False)
        except NodeError as error:
            return [f"the term cannot be read: {error}"]
        if found not in (self.hard_state, self.coming_hard_state):
            return [f"{found}, where {self.hard_state} was saved"]
        self.hard_state = self.coming_hard_state = found
        return []


def _hard_state(words: list[str]) -> HardState:
    term, vote_for = words
    return HardState(term=int(term), vote_for=None if vote_for == NO_CANDIDATE else vote_for)
