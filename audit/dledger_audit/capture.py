"""What the members say of themselves, asked once: the instant that an audit judges."""

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


class AsksManifest(Protocol):
    """A member that can be asked."""

    def manifest(self) -> Manifest: ...


Open = Callable[[str], AbstractContextManager[AsksManifest]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The members' manifests, and findings on those that gave none."""

    group: str
    urls: Mapping[str, str]
    """Of every member that should be read, by id."""
    manifests: Mapping[str, Manifest]
    """Of those that answered, by id."""
    findings: tuple[Finding, ...]

    @property
    def agreed_index(self) -> int:
        """Lowest committed index of those that answered; -1 when nothing is to be compared."""
        return min((m.status.committed_index for m in self.manifests.values()), default=-1)

    @property
    def voters_count(self) -> int:
        """Size of the group: members asked, or more if one of them knows of more."""
        known = [len(manifest.status.peers) for manifest in self.manifests.values()]
        return max(len(self.urls), *known, 0)


def capture(group: str, urls: Mapping[str, str], connect: Open = HttpFiles) -> Capture:
    """Ask all members at the same time; one that cannot be asked costs the others nothing."""
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
        findings=(*refused, *_not_named(urls, manifests), *_behind_the_others(manifests)),
    )


def _ask(group: str, member: str, url: str, connect: Open) -> Manifest | Finding:
    try:
        with connect(url) as files:
            manifest = files.manifest()
        check_names(manifest)
        _refuse_another(manifest, group, member, url)
    except ReadError as error:
        return _about(member, UNREACHABLE, f"its log was not read: {error}")
    return manifest


def _refuse_another(manifest: Manifest, group: str, member: str, url: str) -> None:
    """Judge nobody under another's name: a Service or an address may lead astray."""
    said = manifest.status
    if (said.group, said.self_id) != (group, member):
        raise AnswerError(
            f"{url} is {said.self_id} of the group {said.group}, not {member} of {group}"
        )


def _not_named(urls: Mapping[str, str], manifests: Mapping[str, Manifest]) -> list[Finding]:
    """Report members that the others know of, and nobody asked us to read."""
    known = {peer for manifest in manifests.values() for peer in manifest.status.peers}
    return [
        _about(member, UNREACHABLE, "it belongs to the group, but no --member says where it is")
        for member in sorted(known - urls.keys())
    ]


def _behind_the_others(manifests: Mapping[str, Manifest]) -> list[Finding]:
    """Report members because of which nothing, or less, can be compared."""
    committed = {member: m.status.committed_index for member, m in manifests.items()}
    found = [
        _about(member, NOTHING_COMMITTED, "it knows of no committed entry, so none was compared")
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
        _about(member, BEGINS_LATER, "others hold these entries and it does not", lowest, begin - 1)
        for member, begin in begins.items()
        if begin > lowest
    ]


def _about(member: str, check: str, detail: str, first: int = -1, last: int = -1) -> Finding:
    return Finding(
        check=check,
        severity=WARNING,
        member=member,
        segment="",
        first_index=first,
        last_index=last,
        detail=detail,
    )
