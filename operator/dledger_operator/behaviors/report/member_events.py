"""Decides which Events report that a voter has lost its log, and that it votes again. Pure.

Each is derived from the previous and the new status, so an operator that starts in between reports
neither twice. A member may have joined again before the operator asked it; then only
`MemberReadmitted` shows that its volume was lost.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dledger_formats.http.status import MembershipRole
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.observed_state import ObservedMember
from dledger_operator.resources.event import NORMAL, WARNING

VOLUME_RESET: Final = "VolumeReset"
MEMBER_READMITTED: Final = "MemberReadmitted"
JOINING_KEY: Final = "joining"
JOINED_INDEX_KEY: Final = "joinedIndex"


def joining_to_json(member: ObservedMember, before: Mapping[str, Any], *, led: bool) -> Manifest:
    """Encode whether a voter is without its log, and up to which entry it has taken the leader's.

    `before` is the member's entry in the last status. The member's last answer holds while it does
    not answer. All members of a new group join, so this counts only in a group that has a leader.
    """
    kept = {key: before[key] for key in (JOINING_KEY, JOINED_INDEX_KEY) if key in before}
    status = member.status
    if status is None or member.membership is not MembershipRole.VOTER:
        return kept if member.membership is MembershipRole.VOTER else {}
    shown: Manifest = {}
    if member.is_without_log and (led or JOINING_KEY in kept):
        shown[JOINING_KEY] = True
    if status.joined_index >= 0:
        shown[JOINED_INDEX_KEY] = status.joined_index
    return shown


def member_events(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[EventNote]:
    """Compare the members in two statuses and return the Events to record."""
    known = {each.get("id"): each for each in before}
    notes = []
    for member in after:
        earlier = known.get(member["id"], {})
        if JOINING_KEY in member and JOINING_KEY not in earlier:
            notes.append(_reset(member["id"]))
        joined = member.get(JOINED_INDEX_KEY)
        if joined is not None and joined != earlier.get(JOINED_INDEX_KEY):
            notes.append(_readmitted(member["id"], joined))
    return notes


def _reset(member_id: str) -> EventNote:
    message = (
        f"{member_id} is without its log: its volume is new, empty or older than it was; it takes "
        "the leader's log and votes again when it has everything; unless you have replaced the "
        "volume, find out what happened to it"
    )
    return EventNote(severity=WARNING, reason=VOLUME_RESET, message=message)


def _readmitted(member_id: str, joined: int) -> EventNote:
    message = (
        f"{member_id} votes again: it had lost its log, and has taken the leader's up to entry "
        f"{joined}"
    )
    return EventNote(severity=NORMAL, reason=MEMBER_READMITTED, message=message)
