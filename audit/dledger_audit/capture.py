"""The members' manifests, requested once: the state of the group that an audit judges."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from dledger_audit.verdict import BEGINS_LATER, NOTHING_COMMITTED, UNREACHABLE, WARNING
from dledger_formats.audit import Finding
from dledger_formats.http.status import Manifest
from pyspark_dledger.files import AnswerError, ReadError
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.plan import check_names

ASKED_AT_ONCE_MAX: Final = 16


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
    def agreed_index(self) -> int:
        """Lowest committed index of the members that answered; -1 if none has one."""
        return min((m.status.committed_index for m in self.manifests.values()), default=-1)

    @property
    def voters_count(self) -> int:
        """Size of the group: the number of given members, or more if a manifest lists more."""
        known = [len(manifest.status.peers) for manifest in self.manifests.values()]
        return max(len(self.urls), *known, 0)


def capture(group: str, urls: Mapping[str, str], connect: Connect = HttpFiles) -> Capture:
    """Request all manifests concurrently; a member that fails does not affect the others."""
    with ThreadPoolExecutor(max_workers=min(ASKED_AT_ONCE_MAX, max(1, len(urls)))) as pool:
        answers = list(pool.map(lambda member: _ask(group, member, urls[member], connect), urls))
    manifests = {
        member: answer
        for member, answer in zip(urls, answers, strict=True)
        if isinstance(answer, Manifest)
    }
    refused = [answer for answer in answers if isinstance(answer, Finding)]
    return Capture(
        group=group,
        urls=urls,
        manifests=manifests,
        findings=(*refused, *_without_url(urls, manifests), *_late_or_empty(manifests)),
    )


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
    said = manifest.status
    if (said.group, said.self_id) != (group, member):
        raise AnswerError(
            f"{url} serves member {said.self_id} of group {said.group}, "
            f"not member {member} of group {group}"
        )


def _without_url(urls: Mapping[str, str], manifests: Mapping[str, Manifest]) -> list[Finding]:
    """Report members that the manifests list but for which no URL was given."""
    known = {peer for manifest in manifests.values() for peer in manifest.status.peers}
    return [
        _warning(
            member, UNREACHABLE, "the member belongs to the group, but no --member gives its URL"
        )
        for member in sorted(known - urls.keys())
    ]


def _late_or_empty(manifests: Mapping[str, Manifest]) -> list[Finding]:
    """Report members that reduce the range of entries that can be compared."""
    committed = {member: m.status.committed_index for member, m in manifests.items()}
    found = [
        _warning(
            member, NOTHING_COMMITTED, "the member has no committed entry, so none was compared"
        )
        for member, index in committed.items()
        if index < 0 <= max(committed.values())
    ]
    begins = {
        member: manifest.status.ledger_begin_index
        for member, manifest in manifests.items()
        if committed[member] >= 0
    }
    lowest = min(begins.values(), default=0)
    return found + [
        _warning(
            member,
            BEGINS_LATER,
            "other members hold these entries, this one does not",
            lowest,
            begin - 1,
        )
        for member, begin in begins.items()
        if begin > lowest
    ]


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
