"""`dledger-node store adopt`: make a group of one survivor, after the majority was lost for good.

The survivor becomes the only voter of a group with an identity of its own. The lost members may
return at any time: they and the survivor are then strangers to each other.

What is written, in this order, so that a crash in between leaves a member that cannot lead:

1. `adoption-TIME.json`: what was known, which members were asked, and what is done. It is kept.
2. `group`: the new identity, and that it was adopted. From here on the earlier members are
   strangers, and the member has no majority.
3. `currterm`: a term far above those that the lost majority can have reached.
4. The log: a membership entry with this member as the only voter. All entries become committed.
"""

import asyncio
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from dledger_formats.log import disk
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.errors import StoreError
from dledger_node.raft.membership import Membership
from dledger_node.raft.ready import HardState
from dledger_node.store.derived.membership_bodies import body_of
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.group_file import FolderOwner, load_owner, save_owner
from dledger_node.store.small_files.hard_state import save_hard_state
from dledger_node.store.small_files.whole_file import replace_file
from dledger_node.store_command.others import ask_others
from dledger_node.store_command.report import Report, Verdict
from dledger_node.store_command.verify import lock_holder

TERM_STEP: Final = 1 << 20
"""The increase of the term. A lost majority cannot have held so many elections since, so a reader
that compares terms, such as the operator, never takes the earlier group for the later one.
"""
INDEX_SEGMENT_BYTES: Final = 32 * 5 * 1024 * 1024
TRACE_FILE: Final = "adoption-{time}.json"


class AdoptionRefusedError(StoreError):
    """The survivor must not become a group of its own; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A survivor, and what is known about what it may lack."""

    report: Report
    owner: FolderOwner | None
    group: str
    self_id: str
    members: Membership
    """The membership that the survivor knows."""
    others: Mapping[str, str]
    """The host:port of every other member."""

    @property
    def committed_index(self) -> int:
        """The highest index that the survivor's checkpoint knows as committed; -1 for none."""
        checkpoint = self.report.checkpoint
        return checkpoint.committed_index if checkpoint else -1

    @property
    def term(self) -> int:
        """The survivor's term."""
        return max(
            self.report.end_term, self.report.hard_state.term if self.report.hard_state else 0
        )

    def describe(self) -> list[str]:
        """Return what the survivor has, and what may be lost, in sentences."""
        report = self.report
        voters = ", ".join(self.members.voters)
        identity = self.owner.identity if self.owner else ""
        begin, end = report.begin_index, report.end_index
        has = f"{self.self_id} of the group {self.group} has the entries {begin} to {end}"
        lines = [
            f"{has}; the last one is of term {report.end_term}, the member is in term {self.term}.",
            f"The voters that it knows are {voters}; the group's identity is {identity or 'none'}.",
            *self._doubts(),
        ]
        if self.others:
            others = ", ".join(self.others)
            lines.append(f"After this, {others} can never return with their folders.")
        if self.self_id not in self.members.voters:
            lines.append(f"{self.self_id} was no voter: it may lack acknowledged entries.")
        if report.hard_state and report.hard_state.joining:
            lines.append(f"{self.self_id} was joining: it may lack entries that it once confirmed.")
        if report.hard_state and (lost := report.hard_state.promised_end):
            lines.append(
                f"{self.self_id} lacks entries that it confirmed before its host lost power, up to "
                f"entry {lost.index} of term {lost.term}."
            )
        return lines

    def _doubts(self) -> list[str]:
        """Return what is committed, what may be lost, and what may appear."""
        known, end = self.committed_index, self.report.end_index
        lost = f"What may be lost: every entry after {end}"
        acknowledged = "Clients may have acknowledgments for these entries."
        if known >= end:
            return ["It knows that all of them are committed.", f"{lost}. {acknowledged}"]
        mine = f"its entries from {known + 1} to {end}"
        return [
            f"It knows that the entries up to {known} are committed.",
            f"{lost}, and what the others have in place of {mine}. {acknowledged}",
            (
                f"What may appear: {mine} become part of the log, even if no client has an "
                "acknowledgment for them."
            ),
        ]


def check(report: Report, *, group: str, peers: Mapping[str, str]) -> Adoption:
    """Return the adoption of a verified folder. Raises AdoptionRefusedError if it is impossible.

    `group` may be empty if the folder says which group it belongs to; `peers` are the host:port of
    the group's members.
    """
    folder = report.folder
    if (holder := lock_holder(folder)) is not None:
        raise AdoptionRefusedError(f"{folder} is in use by process {holder}; stop it first")
    if report.verdict is Verdict.DAMAGED:
        raise AdoptionRefusedError(f"{folder} is damaged; `store verify` says where")
    if report.tail_bytes:
        raise AdoptionRefusedError(
            f"{folder} has {report.tail_bytes} bytes after entry {report.end_index} that are no "
            "sound entries; `store verify` describes them, and `store repair-tail` cuts them"
        )
    if report.end_index < 0:
        raise AdoptionRefusedError(f"{folder} has no entries; start a new group instead")
    owner = load_owner(folder)
    name = owner.group if owner else group
    if not name or (group and name != group):
        known = f"belongs to the group {name}" if owner else "does not say whose it is"
        raise AdoptionRefusedError(f"{folder} {known}; correct --group")
    self_id = folder.name.removeprefix("dledger-")
    members = (
        report.membership.membership if report.membership else Membership(tuple(sorted(peers)))
    )
    if self_id == folder.name:
        raise AdoptionRefusedError(f"{folder} names no member")
    if missing := sorted({self_id, *members.members}.difference(peers)):
        raise AdoptionRefusedError(f"--peers has no address of {', '.join(missing)}")
    others = {one: address for one, address in peers.items() if one != self_id}
    return Adoption(
        report=report, owner=owner, group=name, self_id=self_id, members=members, others=others
    )


def ask(adoption: Adoption, pages: Mapping[str, str]) -> None:
    """Ask all other members whether they are up. Raises AdoptionRefusedError if one may be."""
    answers = asyncio.run(ask_others(adoption.group, adoption.others, pages))
    if there := [answer for answer in answers.values() if answer]:
        raise AdoptionRefusedError(
            f"others of the group are there: {'; '.join(there)}. A group heals by itself while a "
            "majority is up; stop them for good if they are not to be part of it any more"
        )


def adopt(adoption: Adoption) -> FolderOwner:
    """Make the survivor the only voter of a new group; return the new owner of the folder.

    Raises StoreError; run the command again after that.
    """
    report = adoption.report
    folder = report.folder
    owner = FolderOwner(group=adoption.group, identity=str(uuid.uuid4()), adopted=True)
    term = adoption.term + TERM_STEP
    store = LogStore.open(
        folder,
        segment_size_bytes=report.data.segment_size,
        index_segment_size_bytes=report.index.segment_size or INDEX_SEGMENT_BYTES,
        verify_all=True,
    )
    try:
        if store.end_index != report.end_index or load_owner(folder) != adoption.owner:
            raise StoreError(f"{folder} has changed since it was verified; run the command again")
        _leave_trace(adoption, owner, term)
        save_owner(folder, owner)
        save_hard_state(folder, HardState(term=term, vote_for=None))
        body = body_of(Membership((adoption.self_id,)))
        store.append_bodies([body], term, [MEMBERSHIP_CHANNEL], disk.NOOP)
        target = store.flush_target()
        store.flush(target)
        store.flushed(target)
        store.save_checkpoint(store.end_index)
    finally:
        store.close()
    return owner


def _leave_trace(adoption: Adoption, owner: FolderOwner, term: int) -> None:
    """Record durably what is done and what was known, for later investigations."""
    now = datetime.now(UTC)
    record: dict[str, Any] = {
        "time": now.isoformat(timespec="seconds"),
        "group": adoption.group,
        "member": adoption.self_id,
        "earlierIdentity": adoption.owner.identity if adoption.owner else "",
        "identity": owner.identity,
        "earlierVoters": list(adoption.members.voters),
        "earlierLearners": list(adoption.members.learners),
        "silent": dict(adoption.others),
        "earlierTerm": adoption.term,
        "term": term,
        "beginIndex": adoption.report.begin_index,
        "endIndex": adoption.report.end_index,
        "endTerm": adoption.report.end_term,
        "committedIndex": adoption.committed_index,
    }
    path = adoption.report.folder / TRACE_FILE.format(time=now.strftime("%Y%m%dT%H%M%S.%fZ"))
    replace_file(path, json.dumps(record, indent=2).encode() + b"\n")
