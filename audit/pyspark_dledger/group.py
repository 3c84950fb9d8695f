"""A group as a query finds it: the copies of its log that can be read now, and up to where.

The log that is read ends at the highest committed index that any of these members knows. So a query
always sees a part of the log from its beginning on, and never an entry that is not committed;
without a leader, it may see a little less than was acknowledged.
"""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from dledger_formats.http.status import Manifest
from pyspark_dledger.copies import Copy, OpenFiles, RefusedError, opened
from pyspark_dledger.files import ReadError
from pyspark_dledger.plan import check_names

_LOG: Final = logging.getLogger(__name__)

ASKED_AT_ONCE_MAX: Final = 16
MANIFEST_TIMEOUT_SECONDS: Final = 5.0
MANIFEST_ATTEMPTS_MAX: Final = 2
"""A member that hangs delays a query by 10 seconds at most: the others are asked meanwhile."""


class NoMemberError(RefusedError):
    """No member of the group can be read now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The copies that can be read; `ask` returns at least one."""

    copies: tuple[Copy, ...]
    silent: Mapping[str, str] = field(default_factory=dict)
    """Why the other members cannot be read, by member id."""

    @property
    def committed_index(self) -> int:
        """The last index of the log; -1 for an empty log."""
        return max((copy.committed_index for copy in self.copies), default=-1)

    @property
    def first_index(self) -> int:
        """The first index that any copy holds; only meaningful if the log is not empty."""
        held = [copy.first_index for copy in self.copies if copy.committed_index >= 0]
        return min(held, default=0)

    @property
    def unsure(self) -> list[str]:
        """The members that do not know yet which of their entries are committed."""
        return [
            copy.member for copy in self.copies if copy.manifest.data and copy.committed_index < 0
        ]

    @property
    def unreported(self) -> list[str]:
        """Why members may have entries that they do not report, a reason per member."""
        reason = "it does not know yet which of its entries are committed"
        return [*self.silent.values(), *(f"{member}: {reason}" for member in self.unsure)]

    @property
    def identity(self) -> str:
        """The group's identity, which no other group has; empty if no copy knows it."""
        return max((copy.manifest.status.group_identity for copy in self.copies), default="")


def ask(
    places: Mapping[str, str],
    known: Mapping[str, Any] | None = None,
    warned_of: Collection[str] = (),
) -> Group:
    """Ask the members of one group.

    `known` are manifests that were given, as JSON objects. Raises RefusedError as `heard` does, and
    if those that answer are of different groups.
    """
    found = heard(places, known, warned_of)
    _check_one_group(found.copies)
    return found


def heard(
    places: Mapping[str, str],
    known: Mapping[str, Any] | None = None,
    warned_of: Collection[str] = (),
) -> Group:
    """Ask members for their manifests at once; `places` are URLs and folders by member id.

    `warned_of` are members whose silence was logged before, so it is not logged again. Raises
    NoMemberError if no member answers, RefusedError if a place belongs to another member.
    """

    def one(member: str) -> Copy | str:
        given = (known or {}).get(member)
        return _copy(member, places[member], json.dumps(given).encode() if given else b"")

    with ThreadPoolExecutor(max_workers=min(ASKED_AT_ONCE_MAX, len(places))) as pool:
        answers = list(pool.map(one, places))
    copies = tuple(answer for answer in answers if isinstance(answer, Copy))
    silent = {
        member: answer
        for member, answer in zip(places, answers, strict=True)
        if isinstance(answer, str)
    }
    if not copies:
        raise NoMemberError(f"no member of the group can be read: {'; '.join(silent.values())}")
    for member, reason in silent.items():
        if member not in warned_of:
            _LOG.warning("reading without a member: %s", reason)
    return Group(copies=copies, silent=silent)


def highest_commit(places: Mapping[str, str]) -> int | None:
    """Return the highest committed index that any member knows; None if none answers.

    The members do not list their files for that.
    """

    def one(place: str) -> int | None:
        try:
            with _opened(place) as files:
                return files.status().committed_index
        except ReadError:
            return None

    with ThreadPoolExecutor(max_workers=min(ASKED_AT_ONCE_MAX, len(places))) as pool:
        known = [index for index in pool.map(one, places.values()) if index is not None]
    return max(known, default=None)


def _opened(place: str) -> AbstractContextManager[OpenFiles]:
    return opened(
        place,
        timeout_seconds=MANIFEST_TIMEOUT_SECONDS,
        attempts_max=MANIFEST_ATTEMPTS_MAX,
    )


def _copy(member: str, place: str, given: bytes) -> Copy | str:
    try:
        if given:
            manifest = Manifest.from_json(given)
        else:
            with _opened(place) as files:
                manifest = files.manifest()
        check_names(manifest)
    except ReadError as error:
        return f"{member}: {error}"
    is_folder = "://" not in place
    if manifest.is_unlisted and not is_folder:
        return f"{member}: it is out of service, and lists no files: {manifest.status.reason}"
    if not is_folder and manifest.status.self_id != member:
        raise RefusedError(f"{place} is the member {manifest.status.self_id}, not {member}")
    return Copy(member=member, place=place, manifest=manifest)


def _check_one_group(copies: Sequence[Copy]) -> None:
    names = {copy.manifest.status.group for copy in copies} - {""}
    identities = {copy.manifest.status.group_identity for copy in copies} - {""}
    if len(names) > 1 or len(identities) > 1:
        listed = "; ".join(
            f"{copy.member} of {copy.manifest.status.group} {copy.manifest.status.group_identity}"
            for copy in copies
        )
        raise RefusedError(f"the members belong to different groups: {listed}; name those of one")
