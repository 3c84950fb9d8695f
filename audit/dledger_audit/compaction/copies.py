"""What a run of compaction must know of all voters, before it reads any entry."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dledger_audit.compaction.decision import VoterReport
from dledger_audit.waiting import NO_WAITS, Waits
from dledger_formats.http.status import SegmentFile, identities_differ
from dledger_formats.log import disk
from pyspark_dledger.copies import Copy, RefusedError
from pyspark_dledger.files import ReadError, UnauthorizedError
from pyspark_dledger.folder import whole_length
from pyspark_dledger.plan import check_names, in_order

ASKED_AT_ONCE_MAX: Final = 16
INDEX_FILE_BYTES: Final = 32 * 5 * 1024 * 1024
"""The length of index files by default."""


def report_of(copy: Copy) -> VoterReport:
    """Return what the decision needs to know about a copy."""
    files = in_order(copy.manifest.data)
    return VoterReport(
        committed_index=copy.committed_index,
        last_segment_index=files[-1].first_index if files else 0,
    )


def ask(group: str, places: Mapping[str, str], waits: Waits = NO_WAITS) -> list[Copy]:
    """Ask all members for their manifests at once; `places` are URLs and folders by member id.

    Raises RefusedError if one does not answer, or is not of the group: without its committed index,
    it is not known how far the log may be compacted.
    """
    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE_MAX) as pool:
        copies = list(pool.map(lambda each: _copy(group, each, places[each], waits), places))
    voters = {voter for copy in copies for voter in copy.manifest.status.voters}
    if missing := sorted(voters - places.keys()):
        raise RefusedError(
            f"the group {group} has the voters {', '.join(missing)}, and no --member says where to "
            "read them; the lowest commit of all voters decides what may go"
        )
    identities = {copy.manifest.status.group_identity for copy in copies} - {""}
    if len(identities) > 1:
        raise RefusedError(
            f"the copies belong to {len(identities)} groups named {group}, with the identities "
            f"{', '.join(sorted(identities))}; give the members of one group"
        )
    return copies


def sizes(copies: Sequence[Copy]) -> tuple[int, int]:
    """Return the length of the copies' data files, and of their index files, in bytes.

    Files that were cut short do not count. Raises RefusedError if whole files have two lengths.
    """
    data = [file for copy in copies for file in copy.manifest.data]
    index = [file for copy in copies for file in copy.manifest.index]
    units = [file for file in index if file.size_bytes % disk.INDEX_UNIT_SIZE == 0]
    return _length(data, "data"), _length(units, "index") or INDEX_FILE_BYTES


def _length(files: Sequence[SegmentFile], kind: str) -> int:
    """Return the length of whole files; 0 if all are empty.

    No file is longer, and each begins at a multiple of it: otherwise, a member has another one.
    """
    length = whole_length(file.size_bytes for file in files)
    starts = (disk.start_offset(file.name) for file in files)
    lengths = sorted({file.size_bytes for file in files})
    if length and (lengths[-1] > length or any(start % length for start in starts)):
        raise RefusedError(
            f"the {kind} files have the lengths {lengths}; a group has one length of {kind} files"
        )
    return length


def _copy(group: str, member: str, place: str, waits: Waits) -> Copy:
    try:
        with waits.opened(place) as files:
            manifest = files.manifest()
        check_names(manifest)
    except UnauthorizedError as error:
        raise RefusedError(f"the member {member} cannot be read: {error}") from error
    except ReadError as error:
        raise RefusedError(
            f"the member {member} cannot be read, so its commit is not known: {error}; start it, "
            "or remove it from the group"
        ) from error
    status = manifest.status
    is_folder = "://" not in place
    if manifest.is_unlisted and not is_folder:
        raise RefusedError(
            f"the member {member} is out of service and lists no files, so its commit is not "
            f"known: {status.reason}; mend it, or remove it from the group"
        )
    if status.group != group and not (is_folder and not status.group):
        raise RefusedError(f"{place} belongs to the group {status.group}, not to {group}")
    if status.self_id != member and not is_folder:
        raise RefusedError(f"{place} is the member {status.self_id}, not {member}")
    return Copy(member=member, place=place, manifest=manifest)


def identity_of(copies: Sequence[Copy]) -> str:
    """Return the identity of the copies' group; empty if no member knows it.

    A member that is out of service reports only the identity in its settings, if there is one.
    """
    return max((copy.manifest.status.group_identity for copy in copies), default="")


def is_other_group(copies: Sequence[Copy], identity: str) -> bool:
    """Return whether a copy is known to belong to a group with another identity."""
    return any(identities_differ(c.manifest.status.group_identity, identity) for c in copies)
