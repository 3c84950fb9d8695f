"""The members' manifests, requested once: the state of the group that an audit judges."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from dledger_audit.checks.electorate import Electorate, Held, cuts_of, is_counted
from dledger_audit.verdict import (
    BEGINS_LATER,
    CHANGED,
    FOREIGN_FILE,
    INFO,
    NOT_COUNTED,
    NOTHING_COMMITTED,
    UNREACHABLE,
    UNRECORDED,
    WARNING,
)
from dledger_formats.audit import Finding
from dledger_formats.http.status import Manifest, NodeStatus, StorageState
from pyspark_dledger.files import AnswerError, ReadError
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.plan import check_names

ASKED_AT_ONCE_MAX: Final = 16
NAMED_MAX: Final = 3
"""Files that a finding names."""


class ManifestSource(Protocol):
    """A member that can be asked for its manifest."""

    def manifest(self) -> Manifest: ...


Connect = Callable[[str], AbstractContextManager[ManifestSource]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The members' manifests, and findings on members without a usable one."""

    group: str
    urls: Mapping[str, str]
    """URLs by member id, for every member to read."""
    manifests: Mapping[str, Manifest]
    """Manifests by member id, for every member that answered."""
    findings: tuple[Finding, ...]

    @property
    def electorate(self) -> Electorate:
        """Whose copies count, and what each member should hold."""
        statuses = {member: manifest.status for member, manifest in self.manifests.items()}
        held = {
            member: Held(first=max(0, status.ledger_begin_index), last=status.committed_index)
            for member, status in statuses.items()
        }
        return Electorate(
            voters=self.voters,
            counted=frozenset(
                member for member in self.voters & statuses.keys() if is_counted(statuses[member])
            ),
            held=held,
            cuts=cuts_of(held),
        )

    @property
    def voters(self) -> frozenset[str]:
        """The voters by the latest membership; without one, all known members but learners."""
        latest = self._latest
        if latest is not None and latest.voters:
            return frozenset(latest.voters)
        peers = {peer for manifest in self.manifests.values() for peer in manifest.status.peers}
        return frozenset(self.urls.keys() | peers)

    @property
    def members(self) -> frozenset[str]:
        """The voters and the learners."""
        learners = self._latest.learners if self._latest is not None else ()
        return self.voters | frozenset(learners)

    @property
    def agreed_index(self) -> int:
        """Lowest committed index of the voters that count; -1 if there is none."""
        held = self.electorate.held
        return min((held[member].last for member in self.electorate.counted), default=-1)

    @property
    def _latest(self) -> NodeStatus | None:
        """The status with the latest membership."""
        statuses = [manifest.status for manifest in self.manifests.values()]
        known = [status for status in statuses if status.voters]
        return max(known, key=lambda status: (status.membership_index, status.term), default=None)


def capture(group: str, urls: Mapping[str, str], connect: Connect = HttpFiles) -> Capture:
    """Request all manifests concurrently; a member that fails does not affect the others."""
    with ThreadPoolExecutor(max_workers=min(ASKED_AT_ONCE_MAX, max(1, len(urls)))) as pool:
        answers = list(pool.map(lambda member: _ask(group, member, urls[member], connect), urls))
    manifests = {
        member: answer
        for member, answer in zip(urls, answers, strict=True)
        if isinstance(answer, Manifest)
    }
    captured = Capture(
        group=group,
        urls=urls,
        manifests=manifests,
        findings=tuple(answer for answer in answers if isinstance(answer, Finding)),
    )
    electorate = captured.electorate
    found = (
        *_without_url(captured),
        *shortfalls(manifests, electorate, electorate.highest_index),
    )
    return replace(captured, findings=(*captured.findings, *found))


def ask_again(captured: Capture, connect: Connect = HttpFiles) -> dict[str, Manifest]:
    """Request the manifests again; leave out members that do not answer this time."""
    urls = {member: captured.urls[member] for member in captured.manifests}
    return dict(capture(captured.group, urls, connect).manifests)


def shortfalls(
    manifests: Mapping[str, Manifest], electorate: Electorate, highest_index: int
) -> list[Finding]:
    """Report members whose copies do not count, or that hold fewer entries or foreign files.

    `highest_index` is the highest index that any member was known to hold as committed.
    """
    return [
        *_not_counted(manifests, electorate.voters),
        *_late_or_empty(manifests, electorate.held, highest_index),
        *_foreign(manifests),
    ]


def change(member: str, held: Held) -> Finding:
    """Report a member whose log changed during both readings."""
    text = "the member's log changed while it was read, twice; audit again when it is steady"
    return _warning(member, CHANGED, text, held.first, held.last)


def unconfirmed(member: str, checks: Iterable[str], first_index: int, last_index: int) -> Finding:
    """Report entries in which these checks found faults, and which could not be read again."""
    text = (
        f"the first reading found faults ({', '.join(checks)}), and the member's log changed, or "
        "it did not answer, before a second one; audit again when it is steady"
    )
    return _warning(member, CHANGED, text, first_index, last_index)


def _ask(group: str, member: str, url: str, connect: Connect) -> Manifest | Finding:
    try:
        with connect(url) as files:
            manifest = files.manifest()
        check_names(manifest)
        _check_identity(manifest, group, member, url)
    except ReadError as error:
        return _warning(member, UNREACHABLE, f"the member's log was not read: {error}")
    return manifest


def _check_identity(manifest: Manifest, group: str, member: str, url: str) -> None:
    """Raise AnswerError if the URL leads to a different member: a Service may be misconfigured."""
    status = manifest.status
    if (status.group, status.self_id) != (group, member):
        raise AnswerError(
            f"{url} serves member {status.self_id} of group {status.group}, "
            f"not member {member} of group {group}"
        )


def _without_url(captured: Capture) -> list[Finding]:
    """Report members of the group for which no URL was given."""
    return [
        _warning(
            member, UNREACHABLE, "the member belongs to the group, but no --member gives its URL"
        )
        for member in sorted(captured.members - captured.urls.keys())
    ]


def _not_counted(manifests: Mapping[str, Manifest], voters: frozenset[str]) -> list[Finding]:
    """Report voters whose copies do not count, and other members that are not judged.

    A learner that joins is no finding: all learners are read like voters, and are in no majority.
    """
    found = []
    for member, manifest in sorted(manifests.items()):
        status, is_voter = manifest.status, member in voters
        joins = is_voter and status.joining
        if not joins and status.storage is StorageState.SOUND:
            continue
        what = (
            "the member's copies do not count"
            if is_voter
            else "the member's removals and snapshots were not judged"
        )
        why = "it joins the group" if joins else f"its storage is {status.storage}"
        reason = f" ({status.reason})" if status.reason else ""
        until = "has joined" if joins else "is sound"
        text = f"{what}, because {why}{reason}; audit again once its `/status` says that it {until}"
        found.append(_warning(member, NOT_COUNTED, text))
    return found


def _late_or_empty(
    manifests: Mapping[str, Manifest], held: Mapping[str, Held], highest_index: int
) -> list[Finding]:
    """Report members that hold nothing, and members that begin later and report no retention."""
    found = [
        _warning(
            member, NOTHING_COMMITTED, "the member has no committed entry, so none was compared"
        )
        for member, each in held.items()
        if each.last < 0 <= highest_index
    ]
    begins = {member: each.first for member, each in held.items() if each.last >= 0}
    lowest = min(begins.values(), default=0)
    return found + [
        _begins_later(manifests[member].status, lowest, begin)
        for member, begin in begins.items()
        if begin > lowest
        and manifests[member].retention is None
        and is_counted(manifests[member].status)
    ]


def _foreign(manifests: Mapping[str, Manifest]) -> list[Finding]:
    """Report files in the folders of segments that are no segments."""
    return [
        _warning(
            member,
            FOREIGN_FILE,
            f"{_named(manifest.foreign)}: no segment of the log, so it was not read, and the "
            "member does not open its log at its next start; move it out of the folder",
        )
        for member, manifest in sorted(manifests.items())
        if manifest.foreign
    ]


def _named(names: Sequence[str]) -> str:
    others = " and others" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + others


def _begins_later(status: NodeStatus, lowest: int, begin: int) -> Finding:
    """Report entries that a member of an earlier release lacks and others hold."""
    found = _warning(
        status.self_id,
        BEGINS_LATER,
        "other members hold these entries, this one does not",
        lowest,
        begin - 1,
    )
    if not removes(status):
        return found
    text = "the member's retention is in force, and its release keeps no record of removals"
    return replace(found, check=UNRECORDED, severity=INFO, detail=text)


def removes(status: NodeStatus) -> bool:
    """Return whether a member's settings let it remove segments."""
    never = {
        "DLEDGER_FILE_RESERVED_HOURS": "0",
        "DLEDGER_RETENTION_BYTES": "0",
        "DLEDGER_DISK_FORCE_CLEAN_PERCENT": "100",
    }
    return any(status.settings.get(name, value) != value for name, value in never.items())


def _warning(member: str, check: str, detail: str, first: int = -1, last: int = -1) -> Finding:
    return Finding(
        check=check,
        severity=WARNING,
        member=member,
        segment="",
        first_index=first,
        last_index=last,
        detail=detail,
    )
